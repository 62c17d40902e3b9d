"""How the series of a figure are told apart."""

# Okabe and Ito's colours, which colour-blind readers tell apart; each with a marker of its own.
SERIES = (
    ("#0072B2", "o"),
    ("#D55E00", "s"),
    ("#009E73", "^"),
    ("#CC79A7", "D"),
    ("#E69F00", "v"),
    ("#56B4E9", "P"),
)
