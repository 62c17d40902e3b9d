"""Tables about runs: two compared, what each cost, what a data set holds."""
