from __future__ import annotations

import pytest
from content.citations import verify_citation
from content.packages import UnknownDocumentError, locate
from content.reference import CONFIG_PATH, settings


@pytest.fixture
def setting():
    return next(s for s in settings() if s.name == "[scheduler] task_queued_timeout")


def test_a_quote_is_found_with_its_white_space_changed(setting):
    quote = "  \n ".join(setting.description[0].split())
    check = verify_citation(CONFIG_PATH, setting.description_line, setting.line_end, quote)
    assert check
    assert check.reason == ""


def test_a_quote_over_several_lines_needs_all_of_them(setting):
    text = " ".join(setting.description[2:5])
    start = setting.description_line + 2
    assert verify_citation(CONFIG_PATH, start, start + 2, text)
    assert not verify_citation(CONFIG_PATH, start, start + 1, text)


@pytest.mark.parametrize("change", ["can", "CAN", "queued."])
def test_a_changed_word_is_noticed(setting, change):
    quote = setting.description[0].strip().replace("can", f"{change}not")
    check = verify_citation(CONFIG_PATH, setting.description_line, setting.description_line, quote)
    assert not check
    assert "does not say" in check.reason


def test_a_quote_at_another_line_is_noticed(setting):
    assert not verify_citation(CONFIG_PATH, 1, setting.description_line - 1, setting.description[0])


@pytest.mark.parametrize(("first", "last"), [(0, 1), (3, 2), (1, 10**6), (-1, 4)])
def test_lines_that_are_no_range_of_the_file_are_named(first, last):
    check = verify_citation(CONFIG_PATH, first, last, "core:")
    assert not check
    assert "no lines" in check.reason


@pytest.mark.parametrize("quote", ["", " \n "])
def test_an_empty_quote_proves_nothing(quote):
    assert not verify_citation(CONFIG_PATH, 1, 5, quote)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "apache-airflow-core",
        "apache-airflow-core/",
        "apache-airflow-core//etc/passwd",
        "/etc/passwd",
        "apache-airflow-core/../../../etc/passwd",
        "apache-airflow-core/airflow/../../x",
        "apache-airflow-core/airflow/../jinja2/__init__.py",
        "apache-airflow-core/airflow/none.py",
        "apache-airflow-core/airflow",
        "apache-airflow-nothing/airflow/x.py",
        "jinja2/airflow/__init__.py",
        "apache-airflow-core/jinja2/__init__.py",
    ],
)
def test_only_files_of_installed_airflow_packages_can_be_cited(path):
    with pytest.raises(UnknownDocumentError):
        locate(path)
    assert not verify_citation(path, 1, 1, "root")
