"""Redaction: tokens of the common kinds are found, and no word of a text is taken for one."""

import json

import polars as pl
import pytest

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.wording.redaction import redact, redactor
from factsweep.pipeline.inputs import catalog

# Put together here, so that nobody who looks for secrets finds one in this file.
A, D, U, H = "aB3dE5gH7j" * 9, "1234567890" * 9, "A1B2C3D4E5" * 9, "0123456789abcdef" * 9
TOKENS = {
    "the hub": f"hf_{A[:34]}",
    "AWS": f"AKIA{U[:16]}",
    "AWS, temporary": f"ASIA{U[:16]}",
    "GitHub": f"ghp_{A[:36]}",
    "GitHub, fine-grained": f"github_pat_{A[:22]}_{A[:59]}",
    "GitLab": f"glpat-{A[:20]}",
    "OpenAI": f"sk-{A[:48]}",
    "OpenAI, of a project": f"sk-proj-{A[:20]}T3BlbkFJ{A[:20]}",
    "Anthropic": f"sk-ant-api03-{A[:80]}",
    "Google": f"AIza{A[:35]}",
    "Google, OAuth": f"ya29.{A[:40]}",
    "Azure storage": f"AccountKey={A[:86]}==",
    "Slack": f"xoxb-{D[:11]}-{D[:11]}-{A[:24]}",
    "Slack, a hook": f"https://hooks.slack.com/services/T{U[:8]}/B{U[:8]}/{A[:24]}",
    "Stripe": f"sk_live_{A[:24]}",
    "SendGrid": f"SG.{A[:22]}.{A[:43]}",
    "Twilio": f"SK{H[:32]}",
    "Mailchimp": f"{H[:32]}-us12",
    "npm": f"npm_{A[:36]}",
    "PyPI": f"pypi-AgEIcHlwaS5vcmc{A[:80]}",
    "Discord": f"M{A[:23]}.{A[:6]}.{A[:27]}",
    "Telegram": f"{D[:9]}:{A[:35]}",
    "Square": f"sq0csp-{A[:43]}",
    "DigitalOcean": f"dop_v1_{H[:64]}",
    "Databricks": f"dapi{H[:32]}",
    "JWT": f"eyJ{A[:20]}.eyJ{A[:30]}.{A[:43]}",
    "a private key": f"-----BEGIN RSA PRIVATE KEY-----\n{A}\n{A}\n-----END RSA PRIVATE KEY-----",
}


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
def test_redactor_token_is_hidden_whole(token: str) -> None:
    assert redactor()(f"refused {token} here") == "refused [redacted] here"


def test_redactor_tokens_beside_each_other_are_all_hidden() -> None:
    text = redactor()(json.dumps(list(TOKENS.values())))
    assert not [name for name, token in TOKENS.items() if token in text]


@pytest.mark.parametrize("header", [f"Bearer {A[:30]}", f"Basic {A[:30]}=="])
def test_redactor_header_keeps_its_kind(header: str) -> None:
    assert redactor()(header) == f"{header.partition(' ')[0]} [redacted]"


@pytest.mark.parametrize(
    "userinfo",
    [
        *("me:pass@", "me@", ":pass@", "me:p@ss@", "me:p@s@s@", "me@corp.com:pass@"),
        *("me:pa ss@", "me:p@s s@", "me:pa ss@word@", "me:p/a/s+s=@", "me:p:a:s:s@"),
        *("me:p%40ss@", "me:p?ss@", "me:p#ss@", "me:p!$&()*,;=~@", "me:pä§@", "me:8080x@"),
        "key:wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY@",
    ],
)
def test_redactor_userinfo_of_a_url_is_left_out(userinfo: str) -> None:
    assert redactor()(f"read s3://{userinfo}bucket/x, then stop") == "read s3://bucket/x, then stop"


def test_redactor_userinfo_of_several_urls_is_left_out() -> None:
    text = "s3://a:b@c/x and gs://d:e f@g,s3://h:i@j:9000/k"
    assert redactor()(text) == "s3://c/x and gs://g,s3://j:9000/k"


@pytest.mark.parametrize(
    "name",
    [
        *("X-Amz-Signature", "X-Amz-Credential", "X-Amz-Security-Token", "Signature", "sig"),
        *("AWSAccessKeyId", "X-Goog-Signature", "access_token", "api_key", "apikey", "token"),
        *("password", "passwd", "passphrase", "client_secret", "secret_key", "credentials"),
    ],
)
def test_redactor_credential_in_a_query_is_hidden(name: str) -> None:
    url = "https://store/x?part=1&{}={}&page=2"
    assert redactor()(url.format(name, "aZ%2F9-_.~+/=")) == url.format(name, "[redacted]")


@pytest.mark.parametrize(
    "text",
    [
        "https://github.com/org/repo@v1.0 and http://127.0.0.1:8265/api@2",
        "http://host:8080 is down; write to me@example.org",
        "see http://host: mail me@example.org",
        "https://en.wikipedia.org/wiki/Talk:A?title=x&token_count=3&max_tokens=10",
        "sk-learn-contrib-of-somebody-else and risk-averse-and-longer-than-that",
        "Bearer certificate; Basic instinct; a basic Authorization",
        "the token of appreciation: password, secret, key",
        "AC/DC, SKODA and APOLLO 11 at 12:30:15 on 2026-11-22",
        "c510ea8c1cdcbfa1f9740500c40b4da88f769f6f5ca758f5b6f7e4b23ccfecb7",
        "0123456789abcdef0123456789abcdef01234567",
        "P36.Q142.000.0 and 6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "Qwen/Qwen3-8B-Base, meta-llama/Llama-3.1-70B-Instruct, hf_transfer",
    ],
)
def test_redactor_text_without_secrets_stays(text: str) -> None:
    assert redactor()(text) == text


def test_redactor_texts_of_the_mini_sets_stay() -> None:
    clean = redactor()
    for name in ("myriadlama-mini", "kamel-mini", "probelm-mini"):
        facts: Facts = catalog.read_facts(catalog.entry(name))
        tables = [facts.relations, facts.templates, facts.pairs, *facts.extra_tables.values()]
        text = "\n".join(
            table.write_ndjson() for table in tables if isinstance(table, pl.DataFrame)
        )
        assert clean(text) == text


def test_redacted_what_holds_no_secret_is_equal() -> None:
    content = {"stop": ["\n", "%"], "n": 1, "of": None, "token": 3}
    assert redact(content) == content
