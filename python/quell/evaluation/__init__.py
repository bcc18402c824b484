"""RFC 7928, the characterisation guidelines for AQMs, as a suite of scenarios with verdicts.

`entry.py` says what an entry of the suite is, `suite.py` lists all of them, and the files that it imports have them as
data, a file for each part of the RFC. `measures.py` has what is measured of a run, `verdict.py` how a verdict follows
from measures and bars. `run.py` runs them, `state.py` keeps what has finished, `show.py` and `page.py` print the
matrix. docs/how-to/evaluate.md is the manual.
"""
