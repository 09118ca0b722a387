/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps a card busy: `sharer PAGES KIND NANOSECONDS STREAMS`. PAGES is a file with a limit page and a share page, which
 * the processes of a lease map together, and a use page, in which the last of them tells its times. KIND is how each
 * kernel of so many nanoseconds is launched: kernel, ex, cooperative, or graph (of four kernels). It prints a line when
 * it begins, goes on until stdin is at its end, and prints its launches, and the nanoseconds that they were charged and
 * have waited. */
#include "wire/limit.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct configured {
  unsigned shape[6], shared;
  void* stream;
  void* attributes;
  unsigned count;
};

extern int cuInit(unsigned);
extern int cuDevicePrimaryCtxRetain(void**, int);
extern int cuCtxSetCurrent(void*);
extern int cuCtxSynchronize(void);
extern int cuModuleLoadData(void**, const void*);
extern int cuModuleGetFunction(void**, void*, const char*);
extern int cuStreamCreate(void**, unsigned);
extern int cuEventCreate(void**, unsigned);
extern int cuEventRecord(void*, void*);
extern int cuEventSynchronize(void*);
extern int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                          void**);
extern int cuLaunchCooperativeKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                                     void**);
extern int cuLaunchKernelEx(const struct configured*, void*, void**, void**);
extern int cuStreamBeginCapture_v2(void*, int);
extern int cuStreamEndCapture(void*, void**);
extern int cuGraphInstantiateWithFlags(void**, void*, unsigned long long);
extern int cuGraphLaunch(void*, void*);
extern int sublet_cuda_adopt(struct sublet_limit_page*) __attribute__((weak));
extern int sublet_cuda_adopt_share(struct sublet_share_page*) __attribute__((weak));
extern int sublet_cuda_use(struct sublet_use_page*) __attribute__((weak));

struct pages {
  struct sublet_limit_page limit;
  struct sublet_share_page share;
  struct sublet_use_page use;
};

enum { NON_BLOCKING = 1, MOST_STREAMS = 8, KERNELS_OF_GRAPH = 4 };
static void *function, *graph, *streams[MOST_STREAMS], *events[2][MOST_STREAMS];
static const char* kind;
static uint64_t nanoseconds;

static int launch(void* stream) {
  void* words[] = {&nanoseconds};
  const struct configured how = {{1, 1, 1, 1, 1, 1}, 0, stream, NULL, 0};
  if (strcmp(kind, "ex") == 0) return cuLaunchKernelEx(&how, function, words, NULL);
  if (strcmp(kind, "cooperative") == 0)
    return cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, words);
  if (strcmp(kind, "graph") == 0 && graph != NULL) return cuGraphLaunch(graph, stream);
  return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, words, NULL);
}

/* None of these launches is paid: they become a graph. */
static int capture(void* stream) {
  void* captured = NULL;
  int result = cuStreamBeginCapture_v2(stream, 0);
  for (int i = 0; i < KERNELS_OF_GRAPH && result == 0; ++i) result = launch(stream);
  if (result == 0) result = cuStreamEndCapture(stream, &captured);
  return result == 0 ? cuGraphInstantiateWithFlags(&graph, captured, 0) : result;
}

static int begin(int count) {
  static const char image[] =
      ".version 6.0\n.target sm_50\n.address_size 64\n"
      ".visible .entry sublet_busy(.param .u64 p_nanoseconds) { ret; }\n";
  void *context = NULL, *module = NULL;
  int result = cuInit(0);
  if (result == 0) result = cuDevicePrimaryCtxRetain(&context, 0);
  if (result == 0) result = cuCtxSetCurrent(context);
  if (result == 0) result = cuModuleLoadData(&module, image);
  if (result == 0) result = cuModuleGetFunction(&function, module, "sublet_busy");
  for (int i = 0; i < count && result == 0; ++i) {
    result = cuStreamCreate(&streams[i], NON_BLOCKING);
    for (int half = 0; half < 2 && result == 0; ++half) result = cuEventCreate(&events[half][i], 0);
  }
  return result == 0 && strcmp(kind, "graph") == 0 ? capture(streams[0]) : result;
}

/* Never more than two batches are in the streams, so that a program without a share is not far ahead of the card. */
static long work(int count, struct sublet_use_page* use) {
  const uint64_t batch = nanoseconds < 5000000 / 200 ? 200 : nanoseconds < 5000000 ? 5000000 / nanoseconds : 1;
  struct pollfd input = {STDIN_FILENO, POLLIN, 0};
  long launches = 0;
  use->size = sizeof *use;
  for (int half = 0; poll(&input, 1, 0) == 0; half = !half) {
    if (sublet_cuda_use != NULL && sublet_cuda_use(use) != 0) return -1;
    for (int stream = 0; stream < count; ++stream) {
      for (uint64_t i = 0; i < batch; ++i, ++launches)
        if (launch(streams[stream]) != 0) return -1;
      if (cuEventRecord(events[half][stream], streams[stream]) != 0) return -1;
      if (cuEventSynchronize(events[!half][stream]) != 0) return -1;
    }
  }
  return cuCtxSynchronize() == 0 ? launches : -1;
}

int main(int words, char** word) {
  if (words != 5) return 2;
  const int file = open(word[1], O_RDWR | O_CLOEXEC), count = atoi(word[4]);
  struct pages* pages = mmap(NULL, sizeof *pages, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  kind = word[2], nanoseconds = strtoull(word[3], NULL, 10);
  if (file < 0 || pages == MAP_FAILED || count < 1 || count > MOST_STREAMS) return 2;
  if (sublet_cuda_adopt != NULL &&
      (sublet_cuda_adopt(&pages->limit) != 0 || sublet_cuda_adopt_share(&pages->share) != 0))
    return 3;
  if (begin(count) != 0) return 4;
  puts("begins");
  fflush(stdout);
  const long launches = work(count, &pages->use);
  pages->use.size = sizeof pages->use;
  if (sublet_cuda_use != NULL && sublet_cuda_use(&pages->use) != 0) return 5;
  const struct sublet_use_device* use = &pages->use.device[0];
  printf("%ld %lu %lu\n", launches, (unsigned long)use->busy, (unsigned long)use->held);
  return launches < 0;
}
