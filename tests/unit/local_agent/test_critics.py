from __future__ import annotations

import copy

import pytest

from airflow_relay.local_agent.backends import InvalidInputError
from airflow_relay.local_agent.extractive.arithmetic import wrong_sums
from airflow_relay.local_agent.extractive.backend import CRITIC_NAMES
from airflow_relay.local_agent.extractive.critics import CRITICS

GOOD = "A pool holds back work that a weak service cannot bear. Each task takes one slot, or more on request."


def text_of(*sentences, title="How a pool protects a weak service"):
    return f"# {title}\n\n" + " ".join(sentences)


def codes(result):
    return {finding["code"] for finding in result["findings"]}


@pytest.mark.parametrize("name", CRITIC_NAMES)
def test_an_extractive_draft_gets_a_score_with_its_reasons(do, draft, researched, name):
    result = do(f"critique/{name}", draft=draft, passages=researched["passages"])
    assert 6.0 <= result["score"] <= 10.0
    assert result["score"] == round(result["score"], 1)
    assert result["score"] == round(10 - sum(finding["points"] for finding in result["findings"]), 1)


@pytest.mark.parametrize("name", CRITIC_NAMES)
def test_a_score_repeats_and_never_leaves_the_scale(do, name):
    awful = text_of(*["It is always terrible, 2 + 2 = 5 and John Smith was sold 7 lies."] * 30, title="x")
    first = do(f"critique/{name}", draft=awful)
    assert first == do(f"critique/{name}", draft=awful)
    assert 0.0 <= first["score"] < 10.0


def test_structure_misses_headings_an_introduction_and_length(do):
    flat = do("critique/structure", draft=" ".join([GOOD] * 12))
    assert codes(flat) == {
        "title_missing",
        "summary_missing",
        "few_headings",
        "heading_missing",
        "section_long",
    }
    assert codes(do("critique/structure", draft=GOOD)) >= {"too_short"}
    twice = f"# T\n\nIntro comes first.\n\n## A\n\n{GOOD} {GOOD}\n\n## A\n\n{GOOD}"
    assert codes(do("critique/structure", draft=twice)) == {"heading_twice"}


def test_voice_counts_passives_and_rhythm(do):
    passive = "The task is started by the pool. The run was stopped by hand. Its slots are counted by nobody."
    assert codes(do("critique/voice", draft=passive)) == {"passive_voice"}
    active = "The pool starts the task. You stop the run by hand when it has gone wrong. Count the slots."
    assert do("critique/voice", draft=active)["score"] == 10.0
    flat = "Pools keep many tasks out. Slots hold many runs down. Limits keep users calm. Tasks use slots up."
    assert "monotone" in codes(do("critique/voice", draft=flat))


def test_ethics_wants_absolute_and_loaded_words_attributed(do):
    assert do("critique/ethics", draft=GOOD)["score"] == 10.0
    bold = do("critique/ethics", draft="Pools never fail. The old limits were terrible.")
    assert codes(bold) == {"absolute_claim", "loaded_word"}
    assert (
        do("critique/ethics", draft='According to the vendor, pools never fail. "It was terrible," he said.')[
            "score"
        ]
        == 10.0
    )


def test_a_cited_absolute_claim_weighs_less(do):
    bare = do("critique/ethics", draft="Pools never fail in any way.")["score"]
    cited = do("critique/ethics", draft="Pools never fail in any way [1].")["score"]
    assert bare < cited < 10.0


def test_shareability_wants_a_title_that_fits_and_a_summary(do):
    long = text_of(GOOD, title="An extremely long title " * 6)
    assert "title_length" in codes(do("critique/shareability", draft=long))
    assert "summary_missing" in codes(do("critique/shareability", draft=GOOD))
    fitting = f"# How a pool protects a weak service\n\n{GOOD}\n\n## More\n\n{GOOD}"
    assert do("critique/shareability", draft=fitting)["score"] == 10.0
    hard = "Parameterisation of heterogeneous configurations necessitates organisational deliberation."
    assert "hard_to_read" in codes(do("critique/shareability", draft=hard))


def test_legal_accuracy_wants_figures_and_names_backed(do):
    passages = [{"n": 1, "quote": "By default a pool has 128 slots."}]
    backed = do("critique/legal_accuracy", draft="By default a pool has 128 slots [1].", passages=passages)
    wrong = do("critique/legal_accuracy", draft="By default a pool has 256 slots [1].", passages=passages)
    bare = do("critique/legal_accuracy", draft="In 2019 the engineer Ada Lovelace added pools.")
    assert backed["score"] == 10.0
    assert codes(wrong) == {"citation_mismatch"}
    assert "256" in wrong["findings"][0]["message"]
    assert codes(bare) == {"uncited"}
    assert "Ada Lovelace" in bare["findings"][0]["message"]


def test_research_rigor_counts_citations_sources_and_sums(do, draft, researched):
    forged = copy.deepcopy(draft)
    for section in forged["sections"]:
        for sentence in section["sentences"]:
            sentence["citations"] = []
    assert "uncited" in codes(do("critique/research_rigor", draft=forged, passages=researched["passages"]))
    one = [{**passage, "source_id": "only"} for passage in researched["passages"]]
    assert "few_sources" in codes(do("critique/research_rigor", draft=draft, passages=one))
    assert "wrong_sum" in codes(do("critique/research_rigor", draft="The total is 12 + 30 = 43 slots [1]."))


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("12 + 30 = 42", False),
        ("12 + 30 = 43", True),
        ("12 plus 30 is 43", True),
        ("1,000 - 1 = 999", False),
        ("10 / 3 = 3.33", False),
        ("10 / 3 = 3.3", False),
        ("10 / 3 = 3.4", True),
        ("7 / 0 = 7", True),
        ("3 of 4 tasks (75 %)", False),
        ("3 of 4 tasks (80 %)", True),
        ("2 out of 3, or 67 percent", False),
        ("version 2 and 3 of the 4 pages", False),
    ],
)
def test_sums_are_done_again(text, wrong):
    assert bool(wrong_sums(text)) is wrong


def test_every_critic_that_can_be_asked_for_exists():
    assert set(CRITICS) == set(CRITIC_NAMES)


def test_a_draft_without_sentences_is_refused(do):
    with pytest.raises(InvalidInputError, match="no sentences"):
        do("critique/voice", draft={"title": "Only a title"})


def test_criticism_turned_into_feedback_raises_the_score(do, researched, draft):
    forged = copy.deepcopy(draft)
    forged["title"] = "How does Airflow limit " + "so very many " * 8 + "runs"
    forged["sections"][0]["sentences"][0] = {"text": "It always works perfectly, 2 + 2 = 5.", "citations": []}

    def panel(text):
        return [do(f"critique/{n}", draft=text, passages=researched["passages"]) for n in CRITIC_NAMES]

    before = panel(forged)
    feedback = [finding for result in before for finding in result["findings"]]
    rewritten = do(
        "write",
        question=draft["question"],
        title=forged["title"],
        passages=researched["passages"],
        draft=forged,
        feedback=feedback,
    )
    after = panel(rewritten)
    assert sum(r["score"] for r in before) / 6 < 8.8
    assert sum(r["score"] for r in after) / 6 > 9.0
