// SPDX-License-Identifier: Apache-2.0
// The parts of Asio and Beast that are no templates, compiled once for all files that use them; see sublet.cmake.
#include <boost/asio/impl/src.hpp>
#include <boost/beast/src.hpp>
