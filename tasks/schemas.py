"""Every record, and every file that people write, under the name that `infra-agent schema` knows it by."""

from pydantic import BaseModel

from serving.scenario import Scenario
from serving.stack import StackSpec
from tasks.campaign import CampaignFile, CampaignReport
from tasks.criteria import CriteriaFile
from tasks.hypothesis_file import HypothesisFile
from tasks.model_file import ModelFile
from tasks.pools_file import PoolsFile
from tasks.proposals import Proposals
from tasks.records import RECORDS


def schemas() -> dict[str, type[BaseModel]]:
    """Name → model, sorted by name."""
    files: tuple[type[BaseModel], ...] = (
        HypothesisFile,
        CriteriaFile,
        Scenario,
        StackSpec,
        CampaignFile,
        CampaignReport,
        PoolsFile,
        ModelFile,
        Proposals,
    )
    return dict(sorted((RECORDS | {model.__name__: model for model in files}).items()))
