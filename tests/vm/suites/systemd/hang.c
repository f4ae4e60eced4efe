// Preloaded, it makes the ioctl that fetches a camera's frame hang for as long as /run/hang is there.
#define _GNU_SOURCE
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

int ioctl(int file, unsigned long request, ...) {
  va_list rest;
  va_start(rest, request);
  void *argument = va_arg(rest, void *);
  va_end(rest);
  const unsigned long dequeue = 0xc0585611;  // VIDIOC_DQBUF of a 64-bit kernel
  while ((unsigned int)request == dequeue && access("/run/hang", F_OK) == 0) usleep(100000);
  return (int)syscall(SYS_ioctl, file, request, argument);
}
