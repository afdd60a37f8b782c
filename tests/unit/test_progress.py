from headroom.progress import Progress, line


def test_a_line_says_what_is_done_and_what_is_left():
    assert line("sft", 100, 400, 0, 20.0, "loss 0.31") == "sft 100/400  loss 0.31  1:00 left"


def test_the_time_left_ignores_what_a_resumed_job_found_finished():
    assert line("sft", 300, 400, 200, 10.0, "") == "sft 300/400  0:10 left"


def test_no_time_is_guessed_before_the_first_step():
    assert line("sft", 200, 400, 200, 0.0, "") == "sft 200/400"


def test_the_last_line_says_how_long_it_took():
    assert line("sft", 4, 4, 0, 3700.0, "") == "sft 4/4  1:01:40 in all"


def test_outside_a_terminal_a_short_job_prints_its_last_line_only(capsys):
    with Progress("x", 3) as progress:
        for done in (1, 2, 3):
            progress.update(done)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("x 3/3")
