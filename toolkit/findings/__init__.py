"""Small named rules that say what a person should look at first."""
