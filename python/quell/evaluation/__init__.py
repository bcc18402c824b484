"""RFC 7928, the characterisation guidelines for AQMs, as a suite of scenarios with verdicts.

`suite.py` has the scenarios as data, an entry per section; `measures.py` what is measured of a run; `verdict.py` how a
verdict follows from measures and bars; `run.py` runs them and keeps what has finished; `show.py` and `page.py` print
the matrix. docs/evaluate.md is the manual.
"""
