"""All that a package needs to add a recipe, a model, a mechanism, a metric or a kind of data (docs/extending.md).

Names that are not listed here may change with any version.
"""

from fedsynth.assess.metric import Metric
from fedsynth.data.atomic import replacing
from fedsynth.data.clients import RawClients, clients_of
from fedsynth.data.encode import Block
from fedsynth.data.modality import Data, Modality, Source
from fedsynth.data.schema import Schema
from fedsynth.data.table import Table
from fedsynth.errors import BadInput, Incompatible, NotPrivate
from fedsynth.federation.algorithm import Algorithm, Home
from fedsynth.federation.query import Query
from fedsynth.federation.schedule import Everyone, FixedCohort, PoissonCohort, Rotation, Schedule
from fedsynth.federation.server import Momentum, ServerAdam
from fedsynth.models.model import Batch, Model, Objective, Params, call, draw_rows, total_size, weighted_mean
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.local import LocalGaussian
from fedsynth.privacy.mechanism import Charge, Mechanism, Release
from fedsynth.privacy.none import NoPrivacy
from fedsynth.privacy.plugged import mechanism_named
from fedsynth.recipes.registry import RECIPES, Recipe
from fedsynth.recipes.settings import ClientPrivacy, Local, Rounds, checked, setting
from fedsynth.recipes.sharing import Sharing, shared_out
from fedsynth.recipes.task import Task
from fedsynth.recipes.vae import client_balance, client_mechanism, schedule_of
from fedsynth.rng import Rng
from fedsynth.training.optimizer import SGD, Adam
from fedsynth.training.plan import Phase
from fedsynth.training.rule import DPSGD, Epochs
from fedsynth.transport.registry import transport_named
from fedsynth.transport.wire import Wire

__all__ = [
    "DPSGD", "RECIPES", "SGD", "Adam", "Algorithm", "BadInput", "Batch", "Block", "CentralGaussian", "Charge",
    "ClientPrivacy", "Clip", "Data", "Epochs", "Everyone", "FixedCohort", "Home", "Incompatible", "Local",
    "LocalGaussian", "Mechanism", "Metric", "Modality", "Model", "Momentum", "NoPrivacy", "NotPrivate", "Objective",
    "Params", "Phase", "PoissonCohort", "Query", "RawClients", "Recipe", "Release", "Rng", "Rotation", "Rounds",
    "Schedule", "Schema", "ServerAdam", "Sharing", "Source", "Table", "Task", "Wire", "call", "checked",
    "client_balance", "client_mechanism", "clients_of", "draw_rows", "mechanism_named", "replacing", "schedule_of",
    "setting", "shared_out", "total_size", "transport_named", "weighted_mean",
]  # fmt: skip
