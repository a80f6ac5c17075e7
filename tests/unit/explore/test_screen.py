"""The screen of `explore`, driven by keys: what is to be read on it, at several sizes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import textual.app
import textual.pilot
from explorecases import exploration, image, large
from textual.pilot import Pilot
from textual.widgets import Input
from textual.worker import WorkerCancelled

from buildmatrix.base.data import replace
from buildmatrix.explore import app as app_module
from buildmatrix.explore.app import ExploreApp
from buildmatrix.explore.model import Exploration
from buildmatrix.explore.widgets import HELP, WAITING, Page

SMALL, LARGE = (80, 24), (200, 60)
Play = Callable[[Pilot[None], ExploreApp], Awaitable[None]]


#: How often all messages of a screen are worked through: a key is handled by the application, the
#: list and the page, and each of them has the next one draw.
ROUNDS = 4


@pytest.fixture(autouse=True)
def nothing_waits_for_an_idle_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual sleeps until the process seems idle, which other processes decide."""
    for module in (textual.app, textual.pilot):
        monkeypatch.setattr(module, "wait_for_idle", lambda *_: asyncio.sleep(0))


@pytest.fixture(scope="module")
def shown() -> Exploration:
    return exploration()


def play(exploration: Exploration, steps: Play, size: tuple[int, int] = SMALL) -> None:
    """Run the program on a screen of memory, and `steps` on it."""

    async def run() -> None:
        app = ExploreApp(exploration)
        app.animation_level = "none"
        async with app.run_test(size=size) as pilot:
            await settle(pilot)
            await steps(pilot, app)

    asyncio.run(run())


def lines(app: ExploreApp) -> list[str]:
    """The text of the screen."""
    width, height = app.size
    rows = app.screen._compositor.render_strips()
    assert len(rows) == height
    texts = [row.text for row in rows]
    assert all(len(text) <= width for text in texts)
    return [text.rstrip() for text in texts]


def screen(app: ExploreApp) -> str:
    return "\n".join(lines(app))


async def press(pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settle(pilot)
        await made(pilot)


async def settle(pilot: Pilot[None]) -> None:
    """Handle all messages, and those that they lead to."""
    for _ in range(ROUNDS):
        await pilot.pause()
        await pilot.app.animator.wait_until_complete()


async def made(pilot: Pilot[None]) -> None:
    """Wait for what is made in threads; what nobody wants any more is cancelled."""
    for worker in tuple(pilot.app.workers):
        with suppress(WorkerCancelled):
            await worker.wait()
    await settle(pilot)


@pytest.mark.parametrize("size", [SMALL, (60, 15), (100, 30), LARGE])
def test_the_first_screen_says_what_it_is(shown: Exploration, size: tuple[int, int]) -> None:
    async def steps(pilot: Pilot[None], app: ExploreApp) -> None:
        first, views, columns, *rest = lines(app)
        assert first.startswith(" oci:")
        assert "162.0 MB for cpu, 96.0 MB wasted" in first
        assert "1 Layers" in views and "vendor" in columns
        assert rest[0].lstrip().startswith("30.0 MB")
        assert "? help" in rest[-1] and "q quit" in rest[-1]
        assert "sha256:1111" in screen(app)

    play(shown, steps, size)


def test_views_change_by_tab_and_by_number(shown: Exploration) -> None:
    async def steps(pilot: Pilot[None], app: ExploreApp) -> None:
        for view in ("distributions", "libraries", "vendors", "layers"):
            await press(pilot, "tab")
            assert app.view == view
        await press(pilot, "shift+tab")
        assert app.view == "vendors" and "nvidia cuda" in screen(app)
        await press(pilot, "2")
        assert "gradients 2.0  bloat" in screen(app)

    play(shown, steps)


def test_space_and_arrows_open_and_close(shown: Exploration) -> None:
    async def steps(pilot: Pilot[None], app: ExploreApp) -> None:
        await press(pilot, "j", "j", "space")
        assert "▾ 3 RUN pip install gradients" in screen(app)
        await press(pilot, "down", "l", "j")
        assert "libgradients.so" in screen(app)
        assert "needed" in screen(app) or "path" in screen(app)
        await press(pilot, "h", "h")
        assert "libgradients.so" not in "\n".join(lines(app)[3:12])
        await press(pilot, "ctrl+@")
        assert "▾" not in "\n".join(lines(app)[3:])
        await press(pilot, "ctrl+space", "g")
        await press(pilot, *["pagedown"] * 2)
        assert "libcudart.so.12" in screen(app)

    play(shown, steps)


def test_a_filter_is_typed_kept_and_ended(shown: Exploration) -> None:
    async def steps(pilot: Pilot[None], app: ExploreApp) -> None:
        await press(pilot, "ctrl+f", *"cudart")
        assert "libcudart.so.12" in screen(app) and "libgradients" not in screen(app)
        # Keys of the list are letters in there.
        await press(pilot, "q")
        assert app.is_running and app.query_one(Input).value == "cudartq"
        assert "No rows match" in screen(app)
        await press(pilot, "backspace", "enter")
        assert not app.query_one(Input).display
        await press(pilot, "2")
        assert "/cudart" in lines(app)[1] and "plain" not in screen(app)
        await press(pilot, "escape")
        assert "plain 1.0" in screen(app)
        await press(pilot, "slash", *"zzz", "escape")
        assert app.filters.text == "" and "plain 1.0" in screen(app)

    play(shown, steps)


def test_vendor_waste_and_order_have_keys(shown: Exploration) -> None:
    async def steps(pilot: Pilot[None], app: ExploreApp) -> None:
        await press(pilot, "3", "v")
        assert "nvidia" in lines(app)[1] and "libc.so.6" not in "\n".join(lines(app)[3:9])
        await press(pilot, "v")
        assert "libc.so.6" in screen(app)
        await press(pilot, "x")
        assert "only wasted" in lines(app)[1] and "libc.so.6" not in "\n".join(lines(app)[3:9])
        await press(pilot, "x", "s", "s")
        assert "name▾" in lines(app)[2] and "libc.so.6" in lines(app)[3]

    play(shown, steps)


def test_keys_of_dive_hide_what_layers_did(shown: Exploration) -> None:
    async def steps(pilot: Pilot[None], app: ExploreApp) -> None:
        await press(pilot, "j", "space")
        assert "deleted by layer 4" in screen(app) and "replaced by layer 3" in screen(app)
        await press(pilot, "ctrl+r")
        assert "deleted by layer 4" not in screen(app) and "removed hidden" in lines(app)[1]
        await press(pilot, "ctrl+r", "m")
        assert "replaced by layer 3" not in screen(app)
        await press(pilot, "ctrl+a")
        assert "plain 1.0" not in screen(app)

    play(shown, steps)


def test_why_shows_the_chains_and_goes_back(shown: Exploration) -> None:
    async def steps(pilot: Pilot[None], app: ExploreApp) -> None:
        await press(pilot, "2", "j", "j", "w")
        assert isinstance(app.screen, Page)
        assert lines(app)[0].startswith("why nvidia-cuda-runtime-cu12")
        assert "gradients 2.0" in screen(app) and "└ nvidia-cuda-runtime-cu12" in screen(app)
        await press(pilot, "a", "escape")
        assert not isinstance(app.screen, Page)
        await press(pilot, "W", *"libcudart", "enter")
        assert "libcudart (the name)" in screen(app)
        await press(pilot, "q")
        assert app.is_running
        # A layer is asked for by nobody.
        await press(pilot, "1", "w")
        assert not isinstance(app.screen, Page)

    play(shown, steps)


def test_enter_shows_all_of_a_file(shown: Exploration) -> None:
    async def steps(pilot: Pilot[None], app: ExploreApp) -> None:
        await press(pilot, "3", "enter")
        assert isinstance(app.screen, Page)
        text = screen(app)
        assert "sm_90" in text and "evidence" in text and "needed" in text

    play(shown, steps, (100, 50))


def test_help_and_what_was_not_read(shown: Exploration) -> None:
    async def steps(pilot: Pilot[None], app: ExploreApp) -> None:
        assert "1 file not read" in lines(app)[0]
        await press(pilot, "question_mark")
        pages = screen(app)
        await press(pilot, "pagedown")
        pages += screen(app)
        # No line of it is too long for 80 columns.
        assert all(line.strip() in pages for line in HELP.splitlines())
        await press(pilot, "escape", "exclamation_mark")
        assert "opt/broken.so: it ends in the middle of its headers" in screen(app)

    play(shown, steps)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_keys_that_end_it(shown: Exploration, key: str) -> None:
    async def steps(pilot: Pilot[None], app: ExploreApp) -> None:
        await press(pilot, key)
        assert not app.is_running or app._exit

    play(shown, steps)


def test_a_window_that_changes_puts_details_beside(shown: Exploration) -> None:
    async def steps(pilot: Pilot[None], app: ExploreApp) -> None:
        assert "─ 1 COPY / / ─" in screen(app)
        await pilot.resize_terminal(*LARGE)
        await settle(pilot)
        assert "─ 1 COPY / / ─" not in screen(app)
        assert "│" in lines(app)[5] and "digest" in screen(app)
        await pilot.resize_terminal(40, 8)
        await settle(pilot)
        assert "30.0 MB" in screen(app)

    play(shown, steps)


def test_markup_and_escapes_of_strangers_are_text(shown: Exploration) -> None:
    whole = image()
    names = ("opt/[bold red]x[/].so", "opt/[@click=app.quit]y[/].so", "opt/\x1b]0;title\x07z.so")
    more = [replace(whole.binaries[2], path=name) for name in names]
    evil = exploration(replace(whole, binaries=(*whole.binaries, *more)), label="dir:[red]a\x1b[2J")

    async def steps(pilot: Pilot[None], app: ExploreApp) -> None:
        await press(pilot, "3")
        text = screen(app)
        assert "[@click=app.quit]y[" in text or "].so  opt/[@click=app.quit]y[" in text
        assert "\\x1b]0;title\\x07z.so" in text and "dir:[red]a\\x1b[2J" in text
        assert "\x1b" not in text and "\x07" not in text
        for _ in range(6):
            await press(pilot, "down")
            assert "\x1b" not in screen(app)
        await press(pilot, "slash", *"[bold", "enter", "w")
        assert "[bold red]x[" in screen(app)

    play(evil, steps)


def test_what_is_no_image_has_no_layers(shown: Exploration) -> None:
    tree = replace(image(), layers=(), origins={}, buried=())

    async def steps(pilot: Pilot[None], app: ExploreApp) -> None:
        assert app.view == "distributions"
        await press(pilot, "1")
        assert "it has no layers" in screen(app)
        await press(pilot, "space", "enter", "w", "right", "left", "pagedown", "s", "v", "x")
        assert app.is_running

    play(exploration(tree), steps)


def test_only_rows_that_are_seen_are_made() -> None:
    many = exploration(large(3_000))

    async def steps(pilot: Pilot[None], app: ExploreApp) -> None:
        await press(pilot, "3", "end")
        assert "lib000000.so" in screen(app)
        await press(pilot, "home", "pagedown", "pagedown", "g")
        assert "lib002999.so" in screen(app)

    play(many, steps)


def test_keys_are_heard_while_an_answer_is_looked_for(
    shown: Exploration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 100,000 libraries it takes a second or two."""
    is_wanted, asked = threading.Event(), []

    def slowly(*arguments: object, **options: object) -> object:
        asked.append(threading.current_thread() is threading.main_thread())
        assert is_wanted.wait(60)
        return answer_question(*arguments, **options)  # type: ignore[arg-type]

    answer_question = app_module.answer_question
    monkeypatch.setattr(app_module, "answer_question", slowly)

    async def steps(pilot: Pilot[None], app: ExploreApp) -> None:
        await press(pilot, "2", "j", "j")
        await pilot.press("w")
        await settle(pilot)
        assert isinstance(app.screen, Page) and WAITING in screen(app)
        await pilot.press("escape", "3")
        await settle(pilot)
        assert app.view == "libraries" and WAITING not in screen(app)
        # Nobody wants that answer any more; the next one is there when it is.
        await pilot.press("2", "j", "j", "w")
        await settle(pilot)
        assert WAITING in screen(app)
        is_wanted.set()
        await made(pilot)
        assert WAITING not in screen(app) and "└ nvidia-cuda-runtime-cu12" in screen(app)
        assert asked == [False, False]
        await press(pilot, "escape")
        assert app.view == "distributions" and "└" not in screen(app)

    play(shown, steps)
