// SPDX-License-Identifier: Apache-2.0
#include "cli/app.h"

int main(int argc, char** argv) { return sublet::cli::run_program(argc, argv); }
