"""Programs over a store of records, mined from recordings: what a tool answers and what it changes.

Read in this order: `values` (JSON values), `collections` (where records stand in answers), `records` (what is
known of them), `scope` (the named values that a call can see), `forms` (programs over names), `conditions`
and `trees` (when a call has which outcome), `synthesis` (the smallest program for some examples), `queries`
(reads as filters over records), `effects` (what a write changes), `mining` (a model of all tools),
`dreaming` (one episode), `trust` (what held-out recordings say of it) and `experience` (a dream's answers).
"""
