"""What the tests of HTML pages share."""

import chromium
import pytest


@pytest.fixture(scope="module")
def browser():
    if chromium.program() is None:
        pytest.skip("could not import 'chromium': no browser was found")
    with chromium.tab() as tab:
        yield tab
