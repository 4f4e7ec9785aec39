"""Compiled code: built, cached on disk, watched for changes."""
