<?php declare(ticks=1);
// SPDX-License-Identifier: BSD-2-Clause-Patent
$n = 3;
return spin($n);
