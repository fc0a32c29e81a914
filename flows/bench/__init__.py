"""The measurements of `venus bench`: ratios within one run, never absolute times against a constant."""
