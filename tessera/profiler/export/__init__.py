"""Recordings for other programs: Chrome traces and a page of HTML."""
