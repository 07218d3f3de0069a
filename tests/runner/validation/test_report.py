"""Tests the report of a validation: the same facts in both forms, and hostile text is escaped."""

import re
from dataclasses import replace
from xml.etree import ElementTree

from rung.recovery.logs.progress import Progress
from rung.recovery.series.point import Point
from rung.recovery.validation.explanations import Setting, memory, slower
from rung.recovery.validation.near_limit import NearLimit
from rung.recovery.validation.run_figures import Figures
from rung.recovery.validation.verdict import Rule, Run, judge
from rung.runner.validation.report import Findings, html, markdown, plots, rows, verdict_line
from rung.runner.validation.report_files import facts

EVIL = "x</svg><script>alert(1)</script>|`[a](http://b)\x1b[31m"


def run(job_id, precision, value, losses=(2.0, 1.0, 0.5)):
    points = tuple(Point(step, loss, loss / 2) for step, loss in enumerate(losses))
    progress = Progress(values={"hmean": value}, furthest_step=2, first_step=0)
    figures = Figures(progress=progress, points=points, losses=len(losses), median_norm=0.5, largest_norm=1.0)
    return Run(job_id, precision, True, "finished", figures=figures, host="localhost")


def findings(name="ocr", value=0.78, candidate="amp_fp16"):
    rule = Rule("hmean", "higher")
    one, other = run("ocr-1", "fp32", 0.8863), run("ocr-2", candidate, value)
    setting = Setting(candidate)
    answers = (slower(one, other, setting), memory(one, other, setting))
    return Findings("v1", name, rule, judge(one, other, rule), one, other, answers, 0.0)


def test_both_forms_have_the_same_content():
    found = findings()
    assert verdict_line(found).startswith("verdict: FAIL ocr: hmean 0.78 in amp_fp16, 0.8863 in fp32: 11.99 % apart")
    for text in (markdown(found), html(found)):
        assert verdict_line(found) in text.replace("&#x27;", "'")
        for word in ("0.8863", "0.78", "-11.99 %", "Is it slower than FP32?", "Is memory not reduced?", "not known"):
            assert word in text, word
    assert "![curves](curves.svg)" in markdown(found) and html(found).count("<svg ") == 1
    assert [row.what for row in rows(found)][:3] == ["hmean", "time per step", "peak memory"]


def test_a_baseline_alone_makes_a_report_too():
    found = replace(findings(), candidate=None)
    assert "not run" in markdown(found) and "not run" in html(found)


def test_hostile_text_is_escaped():
    found = findings(name=EVIL, candidate=EVIL)
    page = html(found)
    assert "<script" not in page and "\x1b" not in page and not re.search(r"(?:src|href)=", page)
    assert page.count("</svg>") == 1
    text = markdown(found)
    assert "<script" not in text and "\x1b" not in text and not re.search(r"(?<!\\)\]\(http", text)
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {5}
    for svg in plots(found).values():
        ElementTree.fromstring(svg)


def near_findings(near):
    found = findings()
    return replace(found, candidate=replace(found.candidate, figures=replace(found.candidate.figures, near=near)))


def test_modules_near_the_limit_are_a_table_with_the_places_to_name():
    found = near_findings(NearLimit(70, 7, {"head.norm": 16376.0}, {"head.out": 32752.0}))
    text, page = markdown(found), html(found)
    assert "## Which modules came near FP16's limit?" in text and "| head.out |  | 32752 (the limit / 2.0) |" in text
    assert "| head.norm | 16376 (the limit / 4.0) |  |" in text
    assert "<td>head.norm</td><td>16376 (the limit / 4.0)</td><td></td>" in page
    for said in (text, page):
        assert "within a factor of 8 of 65504, in 7 of 70 updates" in said and "loss scaler" in said
        assert "fp32_modules: " in said and "head.norm" in said
    data = facts(found)["near_limit"]
    assert data["places"] == ["head.norm"] and data["modules"] == ["head.norm", "head.out"]
    assert data["activations"] == {"head.norm": 16376.0} and len(data["table"]) == 2


def test_the_report_tells_a_run_far_from_the_limit_from_one_that_nobody_watched():
    far, unknown = near_findings(NearLimit(70, 7, {}, {})), near_findings(None)
    assert "None came within a factor of 8" in markdown(far) and "None came within" in html(far)
    assert "Not known: modules are watched" in markdown(unknown) and facts(unknown)["near_limit"] is None
    assert "fp32_modules" not in markdown(far) + markdown(unknown)
