import pytest

from trinity_jax.reasoning import visible
from trinity_jax.tasks import extract

# (reply, content of the last closed tag, the same where a tag left open counts to the end)
TAGGED = [
    ("<idea>6 x 7</idea><answer>42</answer>", "42", "42"),
    ("<answer>\n 42 \n</answer> Hope this helps!", "42", "42"),
    ("<Answer>42</ANSWER>", "42", "42"),
    ("<answer>42</answer >", "42", "42"),
    ("<answer>41</answer> no, <answer>42</answer>", "42", "42"),
    ("<answer>41 <answer>42</answer>", "42", "42"),
    ("<answer>42</answer></answer>", "42", "42"),
    ("<answer>42</answer><answer></answer>", "42", "42"),
    ("<answer>a < b > c\ny</answer>", "a < b > c\ny", "a < b > c\ny"),
    ("<think><answer>7</answer></think><answer>42</answer>", "42", "42"),
    ("<reasoning><answer>7</answer></reasoning>so <answer>42", None, "42"),
    ("<answer>42</answer><reasoning>or <answer>7</answer>", "42", "42"),
    ("<think><answer>7</answer></think>", None, None),
    ("<think>forever and <answer>7</answer>", None, None),
    ("<answer>42", None, "42"),
    ("The answer is 42.", None, None),
    ("42</answer>", None, None),
    ("<answer> </answer>", None, None),
    ("<answer>", None, None),
    ("", None, None),
]


@pytest.mark.parametrize(("reply", "closed", "opened"), TAGGED)
def test_the_last_answer_tag_outside_reasoning(reply, closed, opened):
    assert extract.tagged(visible(reply)) == closed
    assert extract.tagged(visible(reply), unclosed=True) == opened
