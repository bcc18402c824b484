import pytest
from pytest import approx

from conftest import make_record
from quell.results import stats


def test_student_t_agrees_with_tables() -> None:
    # Abramowitz and Stegun, table 26.10.
    assert stats.t975(1) == 12.706
    assert stats.t975(30) == 2.042
    assert stats.t975(40) == approx(2.021, abs=5e-4)
    assert stats.t975(120) == approx(1.980, abs=5e-4)


def test_interval_of_a_small_sample_is_students() -> None:
    # 4, 5, 6: standard deviation 1, t(2) = 4.303, so half the width is 4.303 / sqrt(3).
    e = stats.estimate([4, 5, 6])
    assert e is not None
    assert e.mean == 5
    assert e.half == approx(4.303 / 3**0.5)


def test_one_run_has_no_interval_and_none_no_mean() -> None:
    assert stats.estimate([3.0]) == stats.Estimate(3.0, None, 1)
    assert stats.estimate([None, None]) is None
    assert stats.estimate([None, 2.0, 4.0]) == stats.estimate([2.0, 4.0])


def test_front_keeps_what_nothing_beats_and_ties_stay_together() -> None:
    # (goodput, delay)
    points = [(10.0, 5.0), (12.0, 20.0), (11.0, 30.0), (9.0, 5.0), (12.0, 20.0), (8.0, 1.0)]
    assert stats.pareto(points) == [True, True, False, False, True, True]
    estimates = [(stats.Estimate(g, None, 1), stats.Estimate(d, None, 1)) for g, d in points]
    assert stats.front(estimates) == [True, True, False, False, True, True]
    assert stats.front([(None, None), estimates[0]]) == [True, True]


def test_front_takes_differences_within_a_percent_or_the_interval_for_ties() -> None:
    def marked(*points: tuple[float, float, float]) -> list[bool]:
        return stats.front([(stats.Estimate(g, half, 5), stats.Estimate(d, None, 5)) for g, half, d in points])

    # 0.02 Mbit/s of goodput are within a percent, so the point at 790 ms is off the front.
    assert marked((14.22, 0.0, 9.0), (14.24, 0.0, 790.0)) == [True, False]
    assert marked((14.0, 0.0, 9.0), (14.5, 0.0, 790.0)) == [True, True]
    # 3 % more goodput, but the combined half-width of the intervals is 0.57.
    assert marked((14.0, 0.4, 9.0), (14.5, 0.4, 790.0)) == [True, False]


def test_a_place_on_the_front_that_a_wide_interval_can_explain_is_unsure() -> None:
    def rows(pfifo_ms: float, *p95: float) -> list[tuple[bool, bool]]:
        fixed = [make_record("pfifo", seed, p95=pfifo_ms) for seed in (1, 2, 3)]
        codel = [make_record("codel", k, p95=ms) for k, ms in enumerate(p95)]
        return [(row.on_front, row.unsure) for row in stats.summarise(fixed + codel)]

    # t(2) = 4.303: half the interval's width is 4.303 * 1 / sqrt(3) = 2.48, just below a quarter of the mean of 10.
    assert rows(12.0, 9.0, 10.0, 11.0) == [(True, False), (True, False)]
    # Here half the width is 2.73: at its worse end, 12.73 ms, pfifo with 12 ms would beat codel.
    assert rows(12.0, 8.9, 10.0, 11.1) == [(True, False), (True, True)]
    assert rows(13.0, 8.9, 10.0, 11.1) == [(False, False), (True, False)]
    # A queue that is not on the front needs no more runs, however wide its interval is.
    assert rows(100.0, 500.0, 600.0, 900.0) == [(True, False), (False, False)]


@pytest.mark.parametrize(
    ("ms", "letter"), [(0, "A+"), (4.99, "A+"), (5, "A"), (30, "B"), (60, "C"), (200, "D"), (399.9, "D"), (400, "F")]
)
def test_grades_are_those_of_bufferbloat_tests(ms: float, letter: str) -> None:
    assert stats.grade(ms) == letter


def test_digits_fit_the_values() -> None:
    def digits(goodput: float, p95: float) -> tuple[int, int]:
        rows = stats.summarise(
            [make_record("a", goodput=goodput, p95=p95), make_record("b", goodput=goodput, p95=100.0)]
        )
        found = {m.key: m.digits for m in stats.shown_measures(rows)}
        return found["goodput_mbps"], found["sojourn_ms.p95"]

    assert digits(14.33, 12.0) == (2, 1)
    assert digits(9560.0, 0.07) == (0, 3)
    assert digits(100.0, 0.5) == (1, 2)
    assert digits(0.95, 12.0) == (4, 1)


def test_rows_come_in_order_of_first_appearance() -> None:
    records = [make_record(q, seed) for seed in (1, 2) for q in ("pie", "codel")]
    rows = stats.summarise(records)
    assert [(r.queue, r.runs) for r in rows] == [("pie", 2), ("codel", 2)]


def test_best_is_judged_on_printed_digits_and_absent_where_all_are_alike() -> None:
    goodput = next(m for m in stats.MEASURES if m.key == "goodput_mbps")
    rows = stats.summarise(
        [make_record("a", goodput=10.001), make_record("b", goodput=10.0), make_record("c", goodput=9)]
    )
    assert stats.best(rows, goodput) == {"a", "b"}
    assert stats.best(rows[:2], goodput) == set()


def test_a_measure_that_a_record_lacks_is_absent() -> None:
    [row] = stats.summarise([make_record("a", rtt_ms=None, jain=None)])
    assert row.values["rtt_ms.p95"] is None
    assert row.mean("jain") is None
