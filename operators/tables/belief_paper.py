"""The tables of the two BELIEF papers, in the language of `operators.tables.shared.paper_table`.

Paper 000 is "What Matters in Learning Facts in Language Models?" (2024), 003 its 2025 version. A
table is named after its number in 000; `printed_in` has both. Where 003 adds rows, they are here
too. Tables 2 (Table 15 says the same), 9 (rated by hand) and those of examples
(`template_examples`) are not numbers of a run.
"""

from collections.abc import Iterable, Mapping

from factsweep.operators.tables.shared.paper_table import Column, Place, Table

WHOLE_WORD = ("bert-large-uncased-whole-word-masking",)
BERTS = ("bert-base-uncased", "bert-large-uncased", *WHOLE_WORD)
ENCODERS = (*BERTS, "albert-base-v2", "albert-xxlarge-v2")
# Those of 8B parameters or fewer are asked in all templates, the others in the manual ones.
SMALL = ("llama2-7b", "llama2-7b-it", "llama3-8b", "llama3-8b-it", "phi3-mini", "phi3-small")
LLAMA2 = ("llama2-7b", "llama2-13b", "llama2-70b")
LLAMA2_IT = ("llama2-7b-it", "llama2-13b-it", "llama2-70b-it")
LLAMA3 = ("llama3-8b", "llama3-8b-it", "llama3-70b")
PHI3 = ("phi3-mini", "phi3-small", "phi3-medium")
THREE = ("llama2-7b", "llama3-8b", "phi3-small")
BY_SIZE = (
    *("phi3-mini", "phi3-small", "llama2-7b", "llama2-7b-it", "llama3-8b", "llama3-8b-it"),
    *("llama2-13b", "llama2-13b-it", "phi3-medium", "llama2-70b", "llama2-70b-it", "llama3-70b"),
)
SETTINGS = ("zero-shot", "4-random", "4-relation", "4-template")
MASKED = ("masked",)
MANUAL = "templates=manual"


def at(metric: str, **place: str) -> Place:
    """The part of a place that a column fixes: a metric, and what else is given."""
    return {"metric": metric, **place}


def column(heading: str, *metrics: str, **place: str) -> Column:
    """A column of metrics, and of what else is given of their place."""
    return Column(heading, tuple(at(metric, **place) for metric in metrics))


def of(models: Iterable[str], settings: Iterable[str], **place: str) -> tuple[Place, ...]:
    """A row for each model in each setting, model by model."""
    settings = tuple(settings)
    return tuple({"model": m, "setting": s, **place} for m in models for s in settings)


MODEL: Mapping[str, str] = {"model": "PLM"}
MODEL_SETTING: Mapping[str, str] = {"model": "PLM", "setting": "ICL setting"}

ACC = column("Acc@1", "acc_at_1")
# X-relation makes no sense where a relation has a single template.
ACC_LAMA = column("Acc@1 LAMA-UHN", "acc_at_1", benchmark="lama-uhn")
SINGLE_TEMPLATE = {"benchmark": "lama-uhn", "setting": "4-relation"}
FLUCTUATION = (column("range", "fluctuation_range"), column("SD", "fluctuation_sd"))
CORE = (ACC, *FLUCTUATION, column("Consist", "consist"), column("Ovconf", "ovconf"))
ONE_WORD = column("1-word ratio", "one_word_ratio")
# An encoder predicts one token: there is nothing to count.
ONE_TOKEN = {"setting": "masked", "metric": "one_word_ratio"}
RUNTIME = column("runtime in h", "runtime_hours")
COVERAGE = (
    column("average", "acc_at_1"),
    column("maximum", "coverage_maximum"),
    column("oracle", "coverage_oracle"),
)

TABLES: Mapping[str, Table] = {
    "table-1": Table(
        "Statistics of LAMA-UHN and of the benchmark",
        ("003:1", "000:1"),
        {"metric": "number of"},
        tuple(
            {"metric": name}
            for name in ("templates", "unique_triples", "derived_triples", "pairs", "prompts")
        ),
        (Column("LAMA-UHN", ({"benchmark": "lama-uhn"},)), Column("{benchmark}", ({},))),
    ),
    "table-3": Table(
        "BERT and Llama3-8B with BELIEF and BELIEF-ICL",
        ("003:3", "000:3"),
        MODEL_SETTING,
        (*of(BERTS, MASKED), *of(["llama3-8b"], SETTINGS)),
        (ACC_LAMA, *CORE),
        (SINGLE_TEMPLATE,),
    ),
    "table-4": Table(
        "Instruction following: Llama2-7B/Llama3-8B/Phi3-small",
        ("003:4", "000:4"),
        {"setting": "ICL setting"},
        tuple({"setting": setting} for setting in SETTINGS),
        (
            Column("Acc@1", tuple(at("acc_at_1", model=model) for model in THREE)),
            Column("1-word ratio", tuple(at("one_word_ratio", model=m) for m in THREE)),
        ),
    ),
    "table-5": Table(
        "4-template, manual templates, by model",
        ("003:5", "000:5"),
        MODEL,
        of([*LLAMA2, *LLAMA2_IT, "llama3-8b", "llama3-70b", *PHI3], ["4-template"], variant=MANUAL),
        CORE,
    ),
    "table-6": Table(
        "Zero-shot, by pre-training corpus",
        # In 003 the row Phi3-mini holds the numbers of Phi3-small.
        ("000:6", "003:6"),
        MODEL,
        of([each for each in SMALL if each != "phi3-small"], ["zero-shot"]),
        (*CORE, ONE_WORD),
    ),
    "table-7": Table(
        "Knowledge coverage",
        ("003:8", "000:7"),
        MODEL_SETTING,
        (*of(WHOLE_WORD, MASKED), *of(THREE, ["zero-shot"]), *of(THREE, ["4-template"])),
        COVERAGE,
    ),
    "table-7-of-2025": Table(
        "Llama2-7B before and after instruction tuning",
        ("003:7",),
        MODEL_SETTING,
        of(["llama2-7b", "llama2-7b-it"], SETTINGS),
        (*CORE, ONE_WORD),
    ),
    "table-8": Table(
        "Diversity of multi-prompt data sets",
        ("003:9", "000:8"),
        {"benchmark": "data set"},
        ({"benchmark": "pararel"}, {"benchmark": "lpaqa"}, {}),
        tuple(Column(m, (at(m),)) for m in ("quantity", "lexicon", "syntax", "semantics")),
    ),
    "table-10": Table(
        "How often another name makes the right object likelier",
        ("003:11", "000:10"),
        MODEL,
        of(BERTS, MASKED),
        (column("subject", "extended_subject"), column("object", "extended_object")),
    ),
    "table-11": Table(
        "Acc@1 of the relations' worst, best and mean template",
        ("003:12", "000:11"),
        MODEL,
        of(BERTS, MASKED),
        (
            Column("LAMA-UHN", ACC_LAMA.places),
            *(column(part, f"template_spread_{part}") for part in ("min", "max", "mean")),
        ),
    ),
    "table-12": Table(
        "Robustness to the subject's name and to the template",
        ("003:13", "000:12"),
        MODEL,
        of(BERTS, MASKED),
        (
            column("Consist subject", "subject_consist"),
            column("Consist template", "template_consist"),
            *(
                column(f"Acc@1 min/max {part}", f"{part}_acc_min", f"{part}_acc_max")
                for part in ("subject", "template")
            ),
        ),
    ),
    "table-13": Table(
        "Manual against paraphrased templates",
        ("003:14", "000:13"),
        MODEL,
        of(BERTS, MASKED),
        (
            column("mean rank of manual", "manual_rank"),
            column("Consist inner-group", "inner_group_consist"),
            column("Consist inter-group", "inter_group_consist"),
        ),
    ),
    "table-14": Table(
        "Question (QA) against mask (MP) style on the question templates",
        ("003:15", "000:14"),
        MODEL_SETTING,
        of(["llama2-7b"], SETTINGS),
        tuple(
            column(f"{heading} {style}", metric, variant=variant)
            for heading, metric in (("Acc@1", "acc_at_1"), ("1-word ratio", "one_word_ratio"))
            for style, variant in (("QA", "style=question"), ("MP", "templates=question"))
        ),
    ),
    "table-15": Table(
        "The models and what they were trained on, in billions",
        ("003:16", "000:15"),
        MODEL,
        tuple({"model": model} for model in (*ENCODERS, *LLAMA2, *LLAMA2_IT, *LLAMA3, *PHI3)),
        (
            column("parameters", "billions_of_parameters"),
            column("words", "billions_of_training_words"),
            column("tokens", "billions_of_training_tokens"),
        ),
    ),
    "table-16": Table(
        "All templates",
        ("003:17", "000:16"),
        MODEL_SETTING,
        (*of(ENCODERS, MASKED), *of(SMALL, SETTINGS)),
        (*CORE, ONE_WORD, RUNTIME),
        (ONE_TOKEN,),
    ),
    "table-17": Table(
        "Manual templates alone",
        ("003:18", "000:17"),
        {"setting": "ICL setting", "model": "PLM"},
        (*of(BY_SIZE, ["zero-shot"], variant=MANUAL), *of(BY_SIZE, ["4-template"], variant=MANUAL)),
        (*CORE, ONE_WORD, RUNTIME),
    ),
    "table-18": Table(
        "Knowledge coverage, all models and settings",
        ("003:19", "000:18"),
        MODEL_SETTING,
        (
            *of(ENCODERS, MASKED),
            *of(["llama2-7b", "llama3-8b", "phi3-mini", "phi3-small"], SETTINGS),
        ),
        COVERAGE,
    ),
}

NAMES: Mapping[str, str] = {
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
