#!/usr/bin/env python3
"""Write the repository's address into metadata, and make README's links absolute, for packages that are published.

    python3 tools/address.py https://host/owner/quell ['Name <name@host>']

No file of the repository holds its address; the release workflow calls this program with its own. README's links lead
to the tag of Cargo.toml's version. The second argument is the Debian package's maintainer.
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PICTURES = (".png", ".svg")


def absolute(readme, url, tag):
    """Make README's links absolute."""

    def link(found):
        target = found[2]
        if re.match(r"(https?:|mailto:|#)", target):
            return found[0]
        view = "raw" if target.endswith(PICTURES) else "blob"
        return f"{found[1]}({url}/{view}/{tag}/{target})"

    return re.sub(r"(\[[^\]]*\])\(([^)\s]+)\)", link, readme)


def main(words, root=ROOT):
    """Change the files."""
    url, contact = [*words, "", ""][:2]
    if len(words) > 2 or not re.fullmatch(r"https://[\w.-]+(/[\w.-]+)+", url):
        sys.exit("address: give one address without a slash at its end: make address URL=https://host/owner/quell")
    if contact and not re.fullmatch(r"[^\s<>@][^<>@\n]* <[\w.+-]+@[\w-]+(\.[\w-]+)+>", contact):
        sys.exit(f"address: {contact!r} is not a contact: make address URL=... CONTACT='Name <name@host.example>'")
    texts = {
        name: (root / name).read_text("utf-8") for name in ("Cargo.toml", "pyproject.toml", "CITATION.cff", "README.md")
    }
    if "repository = " in texts["Cargo.toml"]:
        sys.exit(
            "address: Cargo.toml has a repository already; git checkout Cargo.toml pyproject.toml CITATION.cff README.md"
        )
    (version,) = re.findall(r'^version = "(.+)"', texts["Cargo.toml"], re.MULTILINE)
    # JSON's strings are also valid in TOML and YAML.
    line = "\nrepository = " + json.dumps(url)
    texts["Cargo.toml"] = texts["Cargo.toml"].replace("\nlicense = ", line + "\nlicense = ", 1)
    urls = {"Repository": url, "Issues": f"{url}/issues", "Changelog": f"{url}/blob/v{version}/CHANGELOG.md"}
    table = "\n".join(["[project.urls]", *(f"{name} = {json.dumps(address)}" for name, address in urls.items())])
    texts["pyproject.toml"] = texts["pyproject.toml"].replace("[project.scripts]", table + "\n\n[project.scripts]", 1)
    texts["CITATION.cff"] = texts["CITATION.cff"].replace("\nlicense: ", f'\nrepository-code: "{url}"\nlicense: ', 1)
    texts["README.md"] = absolute(texts["README.md"], url, f"v{version}")
    for manifest in root.glob("crates/*/Cargo.toml"):
        inherited = "license.workspace = true\n"
        name = str(manifest.relative_to(root))
        texts[name] = manifest.read_text("utf-8").replace(inherited, inherited + "repository.workspace = true\n", 1)
    if contact:
        texts["packaging/debian/contact"] = contact + "\n"
    for name, text in texts.items():
        (root / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
