"""Tables as text: Markdown, LaTeX, and the layouts of other tools."""
