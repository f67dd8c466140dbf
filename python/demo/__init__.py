"""`make demo` in Python; see __main__."""
