#!/usr/bin/env python3
"""Find measured figures in README.md, docs/guide and docs/design that no page below results/ supports.

1. A passage is a paragraph, a list item or a table. Code blocks are not read.
2. A paragraph or item quotes measurements if it has a word of MEASURED and a number with a unit of time, rate or ratio. A table
   does if the prose of its section (from one heading to the next) has a word of MEASURED; its figures are numbers of 4 digits or
   more and those with decimals.
3. The section must link to a page below results/.
4. Each figure must be in that page's folder, in any file, whatever its thousands separators.

scripts/results-check.txt lists passages that are exempt, with a reason: figures of a paper, limits of the design, examples, and
figures that are still to be measured again (reason "pending: ..."). An entry that matches nothing fails, so the list only shrinks.
Prints what is wrong and exits with 1; `--all` prints every passage that counts as a measurement.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXEMPT = ROOT / "scripts" / "results-check.txt"
UNIT = r"(?:[kMG]i?B/s|/s\b|(?:\w+ )?(?:hits|requests|operations|stores|records|articles|puts) a second|ns\b|us\b|ms\b|s of CPU|s\b|%|times\b)"
NUMBER = r"\d[\d,]*(?:\.\d+)?"
# "17,738 and 19,656/s", "1.7 to 45 ms": a unit holds for the numbers before it as well.
FIGURE = re.compile(rf"(?<![\w.,-])({NUMBER}(?:(?:, | to | and | or | against |, now |/){NUMBER})*)\s?(?:k|M)?\s?{UNIT}")
MEASURED = re.compile(
    r"\b(took|measured(?! interval)|medians?|microseconds (?:an|per) operation|did \d|instead of \d|faster|slower|costs? (?:about |some |below |up to )?\d|(?:had a|the) p99|p99 was|resident|recovered all|before and)\b", re.I
)
LINK = re.compile(r"\]\(((?:\.\./)*results/[^)#]+)")


def sections(text):
    """Yield the text of each section, without code blocks."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    return re.split(r"^(?=#+ )", text, flags=re.M)


def passages(section):
    """Yield paragraphs, list items and tables, each on one line."""
    for passage in re.split(r"\n\s*\n|\n(?=\s*- |\s*\d+\. )|(?<=[^|])\n(?=\|)", section):
        yield " ".join(passage.split())


def figures(passage):
    """Figures of a passage, without thousands separators."""
    plain = re.sub(r"`[^`]*`|\([^()]*\]\([^)]*\)|\]\([^)]*\)", " ", passage)
    if passage.startswith("|"):
        numbers = re.findall(r"(?<![\w.,-])(?:\d+,\d{3}(?:,\d{3})*|\d+\.\d+|\d{4,})(?![\w.])", plain)
    else:
        numbers = [number for group in FIGURE.findall(plain) for number in re.findall(NUMBER, group)]
    return [number.rstrip(",").replace(",", "") for number in numbers]


def digits_of(folder):
    """All numbers in the text files of a results folder."""
    text = " ".join(path.read_text(errors="replace") for path in sorted(folder.iterdir()) if path.is_file())
    return set(re.findall(r"\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", text)))


def main():
    show_all = "--all" in sys.argv[1:]
    entries = [line.split("\t") for line in EXEMPT.read_text().splitlines() if line and not line.startswith("#")]
    malformed = [entry for entry in entries if len(entry) != 3 or len(entry[2]) < 10]
    assert not malformed, f"{EXEMPT.name}: expected FILE, TEXT and REASON, tab-separated: {malformed}"
    unused = {(file, text) for file, text, _ in entries}
    wrong, quoted = [], 0
    texts = [ROOT / "README.md", *sorted((ROOT / "docs").glob("guide/*.md")), *sorted((ROOT / "docs").glob("design/*.md"))]
    for path in texts:
        file = str(path.relative_to(ROOT))
        for section in sections(path.read_text()):
            folders = [(path.parent / link).resolve().parent for link in LINK.findall(section)]
            prose = " ".join(passage for passage in passages(section) if not passage.startswith("|"))
            for passage in passages(section):
                found = figures(passage)
                if not found or not MEASURED.search(prose if passage.startswith("|") else passage):
                    continue
                quoted += 1
                if show_all:
                    print(f"{file}: {found}: {passage[:160]}")
                exempt = {(of, text) for of, text, _ in entries if of == file and text in passage}
                if exempt:
                    unused -= exempt
                    continue
                known = set().union(*map(digits_of, folders))
                missing = [number for number in found if number not in known]
                if not folders:
                    wrong.append(f"{file}: no link to results/ in its section: {', '.join(found)}: {passage[:100]}")
                elif missing:
                    pages = ", ".join(folder.name for folder in folders)
                    wrong.append(f"{file}: {', '.join(missing)} not in {pages}: {passage[:100]}")
    wrong += [f"{EXEMPT.name}: matches nothing: {file}: {text}" for file, text in sorted(unused)]
    print("\n".join(wrong + [f"{quoted} passages quote measurements, {len(wrong)} problems, {len(entries)} exemptions"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
