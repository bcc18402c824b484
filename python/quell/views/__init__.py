"""Presentation of results: tables, figures, the HTML report, output files."""
