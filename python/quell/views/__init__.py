"""What users see of results: tables, figures, the HTML report, output files."""
