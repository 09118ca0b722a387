// SPDX-License-Identifier: Apache-2.0
// Exists only so that the precompiled header has one owner; see sublet.cmake.
