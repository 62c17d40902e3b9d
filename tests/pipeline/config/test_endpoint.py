"""A model behind an endpoint: its recipe, its settings and their refusals."""

import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.cluster.hardware import hardware
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import models
from factsweep.pipeline.stages.plan import build_plan

SERVED = ["model=endpoint", "model.id=maker/some-model", "model.endpoint=https://host:8000/v1"]


def served(*overrides: str) -> Run:
    return load([*SERVED, *overrides])


def refused(*overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        load(list(overrides))
    return str(caught.value)


def test_endpoint_model_is_named_by_its_id_and_asked_by_the_client() -> None:
    assert served().name == "some-model-myriadlama-mini-4-template"
    assert served().engine.name == "endpoint"
    assert load([*SERVED, "decoding.engine=fake"]).engine.name == "fake"


def test_endpoint_recipe_says_what_is_known_and_nothing_of_this_machine() -> None:
    (branch,) = build_plan(served()).branches
    fields = branch.answers.recipe.fields
    assert fields["software"] == {"engine": "endpoint 1"}
    assert fields["model"] == {
        "source": "endpoint",
        "id": "maker/some-model",
        "revision": "any",
        "endpoint": "https://host:8000/v1",
        "chat_template": False,
        "max_model_len": 4096,
        "engine": {},
    }


POOL = (*SERVED[:2], "model.endpoint.urls=[http://a:8000/v1,http://b:8000/v1]")


def test_endpoint_pool_recipe_has_no_address_so_order_and_number_change_nothing() -> None:
    def recipe(urls: str) -> dict[str, object]:
        run = load([*SERVED[:2], f"model.endpoint.urls=[{urls}]"])
        (branch,) = build_plan(run).branches
        return dict(branch.answers.recipe.fields)

    pool = recipe("http://a:8000/v1,http://b:8000/v1")
    assert served(POOL[2]).model.urls == ("http://a:8000/v1", "http://b:8000/v1")  # the last counts
    assert served(POOL[2], SERVED[2]).model.urls == ("https://host:8000/v1",)
    assert pool == recipe("http://b:8000/v1,http://a:8000/v1") == recipe("http://c/v1")
    assert pool["model"] == {
        "source": "endpoint",
        "id": "maker/some-model",
        "revision": "any",
        "chat_template": False,
        "max_model_len": 4096,
        "engine": {},
    }


def test_endpoint_pool_is_named_by_its_number_where_rates_are_kept() -> None:
    assert hardware(load([*POOL])).name == "endpoint 2 servers"


@pytest.mark.parametrize(
    ("change", "is_other"),
    [
        ("model.endpoint=https://other/v1", True),
        ("model.revision=fp_1", True),
        ("model.chat_template=true", True),
        ("model.engine.reasoning_effort=low", True),
        ("model.replicas.max=4", False),
        ("model.client.timeout_s=9", False),
        ("model.dtype=float16", False),
    ],
)
def test_endpoint_recipe_changes_with_what_may_change_an_answer(
    change: str, is_other: bool
) -> None:
    (own_branch,), (other,) = build_plan(served()).branches, build_plan(served(change)).branches
    assert (own_branch.answers.fingerprint != other.answers.fingerprint) == is_other


def test_endpoint_models_of_this_machine_have_the_recipes_that_they_had() -> None:
    (branch,) = build_plan(load(["model.dtype=float32"])).branches
    assert not {"endpoint", "tokenizer"} & branch.answers.recipe.fields["model"].keys()


def test_endpoint_holds_no_hardware_here() -> None:
    engine_hardware = hardware(served())
    assert (engine_hardware.gpus, engine_hardware.cores, engine_hardware.name) == (
        0,
        0,
        "endpoint host:8000",
    )


def test_endpoint_tokens_are_estimated_where_no_tokenizer_is_known() -> None:
    tokenizer, other = (models.tokenizer(models.resolve(served().model)) for _ in range(2))
    (ids,) = tokenizer(["Paris is in France."]).input_ids
    assert len(ids) == 5
    assert other(["It is in France."]).input_ids[0][1:] == ids[1:]  # as another process has them
    assert tokenizer.decode(ids, skip_special_tokens=True) == "Paris is in France."


def test_endpoint_address_with_a_key_is_refused_and_not_repeated() -> None:
    for url in ("https://me:hunter22@host/v1", "https://host/v1?api_key=hunter22"):
        for address in (f"='{url}'", f".urls=[http://a/v1,'{url}']"):
            message = refused(*SERVED[:2], f"model.endpoint{address}")
            assert "OPENAI_API_KEY" in message
            assert "hunter22" not in message


PREFERRING = (*SERVED, "benchmark=distractors-mini", "model.tokenizer=t")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model=endpoint"], "needs model.id=<its name there> and model.endpoint=<URL>"),
        ([*SERVED[:2], "model.endpoint=host"], "is no URL"),
        ([*SERVED[:2], "model.endpoint.urls=[http://a/v1,host]"], "is no URL"),
        ([*SERVED[:2], "model.endpoint.urls=[]"], "model.endpoint.urls=[<URL>,…]"),
        ([*SERVED[:2], "model.endpoint.urls=[http://a/v1,http://a/v1/]"], "http://a/v1 twice"),
        ([*SERVED[:2], "model.endpoint.urls=http://a/v1"], "be a list"),
        ([*SERVED, "model.client.key_variable=mine"], "no name of a secret"),
        ([*SERVED, "benchmark=distractors-mini"], "compares entities token by token, which needs"),
        ([*PREFERRING, "decoding.baselines.beams=2"], "an endpoint gives no beams"),
        (["decoding.engine=endpoint"], "a server is asked with model=endpoint"),
        (["model.endpoint=http://host/v1"], "a server is asked with model=endpoint"),
        ([*SERVED, "benchmark=probelm-mini"], "needs model.tokenizer=<the model's own>"),
        (
            [*SERVED, "benchmark=probelm-mini", "model.tokenizer=t", "model.chat_template=true"],
            "chats score nothing",
        ),
        (["decoding.scorer=endpoint"], "a server is asked with model=endpoint"),
        ([*SERVED, "model.engine.max_tokens=3"], "is what decoding.max_tokens says"),
        (["prompt.as=turns"], "prompt.as=turns asks a chat, and model=smollm2-135m reads raw"),
        ([*SERVED, "prompt.as=chat"], "reads raw text; set model.chat_template=true"),
        (["prompt.system=Hello"], "prompt.system is a turn of its own; give prompt.as=turns"),
        (["model=bert-base-uncased", "prompt=masked", "prompt.as=turns"], "not masks or scores"),
        (["benchmark=probelm-mini", "prompt.as=turns"], "not masks or scores"),
    ],
)
def test_endpoint_half_a_model_or_a_chat_without_a_template_is_refused(
    overrides: list[str], message: str
) -> None:
    assert message in refused(*overrides)


@pytest.mark.parametrize(
    ("overrides", "variant"),
    [
        ([], None),
        (["model.chat_template=true"], "as=chat"),
        (["model.chat_template=true", "prompt.as=turns"], "as=turns"),
        (
            ["model.chat_template=true", "prompt.as=turns", "prompt.system=''"],
            "as=turns,system=none",
        ),
        (["model.chat_template=true", "benchmark=kamel-mini", "prompt.as=turns"], "as=turns"),
    ],
)
def test_chat_way_it_is_asked_stands_in_the_variant(
    overrides: list[str], variant: str | None
) -> None:
    assert served(*overrides).settings[0].variant == variant


def test_chat_of_one_turn_has_the_prompts_of_raw_text_and_turns_have_their_own() -> None:
    raw, chat, turns = (
        build_plan(served(*overrides)).branches[0].prompts.fingerprint
        for overrides in (
            [],
            ["model.chat_template=true"],
            ["model.chat_template=true", "prompt.as=turns"],
        )
    )
    assert raw == chat != turns
