"""Texts between the tags of an output that are hard on a careless parser; each is about `size` characters long."""

_REGION = '{"region": "left lung", "box": [0.1, 0.2, 0.3, 0.4], "finding": '

BOMBS = {
    "braces": ("", "{"),
    "objects in objects": ("", '{"a":'),
    "lists in lists": ('{"a":', "["),
    "quotes": ('{"region": ', '"'),
    "quotes and spaces": ('{"region": "', '" '),
    "quotes and commas": ('{"region": "', '", '),
    "apostrophes": ("{'region': '", "' "),
    "spaces": ('{"region": "left', " "),
    "backslashes": ('{"region": "', "\\"),
    "braces that close": ('{"region": "', "} "),
    "brackets that close": ("{region: ", "] "),
    "commas": ("{", ","),
    "colons": ("{", ":"),
    "keys": ("{", "region:"),
    "quoted keys": ("{", '"region":'),
    "a long key": ('{"', "a b"),
    "a word": ("{region: ", "a"),
    "words": ("{region: ", "a "),
    "a number": ('{"box": [0.1, ', "1"),
    "numbers": ('{"box": "', "1 "),
    "exponents": ('{"box": "', "1e"),
    "points": ('{"box": "', "(1,2),"),
    "corners": ('{"box": "', "x1: 1, "),
    "comments": ("{", "//"),
    "hashes": ("", "{,          #"),
    "think": ("", "<think>"),
    "think ends": ("", "</think>"),
    "tags that are none": ("", "< "),
    "prose": ("", "The left lung is clear. "),
    "a finding": (_REGION + '"', "clear "),
    "a finding with quotes": (_REGION + '"', 'lungs "clear" now '),
    "regions": ("[", _REGION + '"clear"},'),
    "regions in Python": ("[", _REGION.replace('"', "'") + "'clear'},"),
    "regions that escape": ("[", (_REGION + '"clear"},').replace('"', '\\"')),
    "no text": ("{", "\x00"),
}


def bomb(name: str, size: int) -> str:
    """The text of this name."""
    start, repeated = BOMBS[name]
    return start + repeated * (size // len(repeated))
