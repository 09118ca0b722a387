// SPDX-License-Identifier: Apache-2.0
#include "base/descriptors.h"
#include "cli/app.h"

int main(int argc, char** argv) {
  sublet::occupy_standard_descriptors();
  return sublet::cli::run_program(argc, argv);
}
