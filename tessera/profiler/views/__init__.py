"""Plotly figures of a recording. Plotly is imported when a figure is made."""
