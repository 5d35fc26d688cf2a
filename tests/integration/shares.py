# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Bounds for shares that a test measures by samples.

    assert near(found=row["self"], samples=total, share=0.7)

The number of samples that fall into a share of the time has a binomial distribution, so the
tolerance follows from the number of all samples. A busy machine yields fewer samples and thus
wider bounds, not a failure.
"""
import math

SIGMAS = 5  # one false alarm in 1.7 million comparisons


def tolerance(samples, share, slack=0.0):
    """The maximum distance of a measured share from the true one. slack is added for errors that
    are not due to chance, such as a true share that is known only roughly."""
    return SIGMAS * math.sqrt(max(share * (1 - share), 1 / max(samples, 1)) / max(samples, 1)) + slack


def near(found, samples, share, slack=0.0):
    """Checks that `found` of `samples` agree with a share of the time."""
    assert samples > 0, "no samples"
    off = abs(found / samples - share)
    assert off <= tolerance(samples, share, slack), (
        f"{found} of {samples} samples are {found / samples:.3f}; a share of {share} allows {tolerance(samples, share, slack):.3f} more or less"
    )
    return True
