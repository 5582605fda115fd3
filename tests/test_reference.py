"""docs/configuration.md is what the settings say, and says every one of them."""

from pathlib import Path

from trinity_jax.config import Settings
from trinity_jax.config.reference import reference

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == reference() + "\n", (
        "run: python -m trinity_jax settings > docs/configuration.md"
    )


def test_every_key_has_a_line_under_its_group():
    page = reference()
    sections = {part.split("\n", 1)[0]: part for part in page.split("\n## ")}
    for name, field in Settings.model_fields.items():
        assert f"| `{name}` |" in sections["A run"]
        for key in getattr(field.annotation, "model_fields", {}):
            assert f"| `{key}` |" in sections[f"`{name}`"]
    # Groups in a list, in a group in a group, and text that would break a table.
    assert "## `pool.models[]`" in page
    assert "## `learning.warm_start`" in page
    assert "integer <= -1 | `-2`" in page
