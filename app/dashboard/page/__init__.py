"""The page as separate files; `assemble` makes one response of them."""
