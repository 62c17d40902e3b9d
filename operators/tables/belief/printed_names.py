"""What the BELIEF papers call the models, sets and counts that have other names here."""

from collections.abc import Mapping
from types import MappingProxyType

NAMES: Mapping[str, str] = MappingProxyType(
    {
        "bert-base-uncased": "BERT base",
        "bert-large-uncased": "BERT large",
        "bert-large-uncased-whole-word-masking": "BERT wwm",
        "albert-base-v2": "ALBERT base",
        "albert-xxlarge-v2": "ALBERT large",  # the papers' word; their model card links xxlarge
        "llama2-7b": "Llama2-7B",
        "llama2-7b-it": "Llama2-7B-IT",
        "llama2-13b": "Llama2-13B",
        "llama2-13b-it": "Llama2-13B-IT",
        "llama2-70b": "Llama2-70B",
        "llama2-70b-it": "Llama2-70B-IT",
        "llama3-8b": "Llama3-8B",
        "llama3-8b-it": "Llama3-8B-IT",
        "llama3-70b": "Llama3-70B",
        "phi3-mini": "Phi3-mini",
        "phi3-small": "Phi3-small",
        "phi3-medium": "Phi3-medium",
        "myriadlama": "MyriadLAMA",
        "lama-uhn": "LAMA-UHN",
        "pararel": "PARAREL",
        "lpaqa": "LPAQA",
        "templates": "Relational templates",
        "unique_triples": "Unique triples",
        "derived_triples": "Derived triples",
        "pairs": "Subject-relation pairs",
        "prompts": "Prompts",
    }
)
