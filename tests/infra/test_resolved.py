"""What pip would install, as the lines of a lock."""

import importlib.util
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "infra" / "resolved.py"


def test_a_report_becomes_sorted_lines_without_local_versions_or_addresses() -> None:
    spec = importlib.util.spec_from_file_location("resolved", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    resolved = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(resolved)
    report = {
        "install": [
            {"metadata": {"name": "torch", "version": "2.14.1+cu130"}, "download_info": {"url": "https://x/torch.whl"}},
            {"metadata": {"name": "Huggingface_Hub", "version": "1.33.0"}},
        ]
    }
    assert resolved.lines(report) == ["huggingface-hub==1.33.0", "torch==2.14.1"]
