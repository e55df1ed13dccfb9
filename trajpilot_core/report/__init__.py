"""The report: tables, plots, gallery, one offline HTML file."""
