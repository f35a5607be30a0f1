"""A trace without what is alike: arrays prove it, and the checks see the rest in full.

``columns`` reads, ``plan`` divides a run into windows, ``window`` looks at one of them, ``align``
finds what two members have in common, ``course`` puts the windows of a run together for the checks.
"""
