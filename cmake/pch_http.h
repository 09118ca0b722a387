// SPDX-License-Identifier: Apache-2.0
// For the folder that answers requests: an event loop, and JSON.
#pragma once

#include "pch_json.h"
#include "pch_net.h"
