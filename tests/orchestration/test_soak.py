"""The preset of the tests of crashes and of the stack."""

from deployments.recipes.simulated import soak
from schemas.world import soak_world


def test_the_soak_world_has_twelve_whole_takes_of_which_three_are_tested() -> None:
    world = soak_world()
    assert (world.train_takes + world.test_takes, world.test_takes, world.broken) == (12, 3, "none")


def test_every_training_of_the_soak_recipe_is_two_epochs() -> None:
    config = soak()
    trainings = (config.alignment.train, config.predictor.train, config.scorer.train)
    assert [(train.epochs, train.patience) for train in trainings] == [(2, None)] * 3
