"""Scripted oracles: a task's natural shortest solution, from what the agent sees.

Each is a stateless function of the episode so far, so a demonstration can start at any point, after a mistake too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headroom.worlds.base import Action, Observation
from headroom.worlds.miniwob.oracles import choosing, clicking, mail, searching, typing
from headroom.worlds.miniwob.oracles.page import Oracle, Page

ORACLES: dict[str, Oracle] = {
    "buy-ticket": clicking.best_ticket,
    "choose-date": choosing.calendar_date,
    "choose-date-easy": choosing.calendar_date,
    "choose-date-medium": choosing.calendar_date,
    "choose-date-nodelay": choosing.calendar_date,
    "choose-list": choosing.list_option,
    "click-button": clicking.quoted_button,
    "click-button-sequence": clicking.one_then_two,
    "click-checkboxes": choosing.checkboxes,
    "click-checkboxes-large": choosing.checkboxes,
    "click-checkboxes-soft": choosing.similar_checkboxes,
    "click-checkboxes-transfer": choosing.checkboxes,
    "click-collapsible": clicking.expand_then_submit,
    "click-collapsible-nodelay": clicking.expand_then_submit,
    "click-collapsible-2": searching.link_in_sections,
    "click-collapsible-2-nodelay": searching.link_in_sections,
    "click-dialog": clicking.only_button,
    "click-dialog-2": clicking.dialog_button,
    "click-link": clicking.quoted_link,
    "click-option": choosing.radio,
    "click-tab": clicking.numbered_tab,
    "click-tab-2": searching.link_behind_tabs,
    "click-tab-2-easy": searching.link_behind_tabs,
    "click-tab-2-medium": searching.link_behind_tabs,
    "click-tab-2-hard": searching.link_behind_tabs,
    "click-test": clicking.only_button,
    "click-test-2": clicking.button_in_capitals,
    "click-test-transfer": clicking.button_in_capitals,
    "copy-paste": typing.copied_text,
    "copy-paste-2": typing.copied_text,
    "email-inbox": mail.mailbox,
    "email-inbox-delete": mail.mailbox,
    "email-inbox-forward": mail.mailbox,
    "email-inbox-important": mail.mailbox,
    "email-inbox-reply": mail.mailbox,
    "enter-date": typing.date,
    "enter-password": typing.password_twice,
    "enter-text": typing.quoted_text,
    "enter-text-2": typing.cased_text,
    "enter-text-dynamic": typing.quoted_text,
    "enter-time": typing.time,
    "find-greatest": searching.greatest_card,
    "find-word": typing.nth_word,
    "focus-text": clicking.only_field,
    "focus-text-2": clicking.nth_field,
    "form-sequence-2": typing.radio_and_number,
    "generate-number": searching.generated_number,
    "guess-number": searching.guessed_number,
    "login-user": typing.user_and_password,
    "login-user-popup": typing.user_and_password,
    "multi-layouts": typing.film_search,
    "multi-orderings": typing.film_search,
    "navigate-tree": searching.name_in_tree,
    "odd-or-even": choosing.odd_or_even,
    "order-food": choosing.food,
    "phone-book": searching.contact_detail,
    "read-table": typing.table_value,
    "read-table-2": typing.table_values,
    "search-engine": searching.search_result,
    "simple-algebra": typing.algebra,
    "simple-arithmetic": typing.arithmetic,
    "social-media-all": searching.all_posts_by_user,
    "social-media-some": searching.posts_by_user,
    "unicode-test": clicking.quoted_button,
    "use-autocomplete": choosing.autocomplete,
    "use-autocomplete-nodelay": choosing.autocomplete,
    "use-spinner": choosing.spinner,
}


def oracle(task: str) -> Callable[[Sequence[Observation], Sequence[Action]], Action | None]:
    """The oracle of ``task``: (observations so far, actions so far) -> the next action.

    It answers None when the episode is over, or when it has no next action: the page shows nothing that helps, or
    has just refused the very action (a covered button).

    Raises:
        ValueError: the task has no oracle.
    """
    if task not in ORACLES:
        raise ValueError(f"no oracle for task {task!r}; there is one for: {', '.join(sorted(ORACLES))}")
    solve = ORACLES[task]

    def next_action(observations: Sequence[Observation], actions: Sequence[Action]) -> Action | None:
        if observations[-1].done:
            return None
        try:
            action = solve(Page(observations, actions))
        except LookupError:
            return None
        refused = bool(actions) and actions[-1] == action and observations[-1].outcome.invalid
        return None if refused else action

    return next_action
