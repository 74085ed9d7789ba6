"""Everything that touches torch and Pyro; arrays in, arrays out."""
