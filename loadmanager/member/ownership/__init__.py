"""Who owns a bundle: the claims in the store, and the lives of this member's bundles.

`ownership` acquires, releases, splits and loses bundles. `claims` is what it asks of the store:
`locks` answer in the modular manager, `state_records` with `state_cache` and `openings` in the
extensible one; `owners` reads a claim. `lives` are this member's bundles, which `replacing`
splits and merges. `log` says what happened.
"""
