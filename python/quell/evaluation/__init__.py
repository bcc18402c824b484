"""RFC 7928, the characterisation guidelines for AQMs, as a suite of scenarios with verdicts.

`entry.py` defines an entry of the suite, `suite.py` lists all entries, and the files that it imports contain them as
data, one file for each part of the RFC. `measures.py` has the measures of a run, `verdict.py` derives verdicts from
measures and bars, `run.py` runs the entries, `state.py` keeps finished runs, `show.py` and `page.py` print the matrix.
docs/how-to/evaluate.md is the manual.
"""
