// One thread wakes another 300 times, 2 ms apart; with an argument the two are bound to CPU 0 and CPU 1. Times in us.
#define _GNU_SOURCE
#include <sched.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdint.h>
#include <unistd.h>
#include <time.h>
#include <sys/eventfd.h>
static int a,b; static volatile double t0; static double d[300],rt[300]; static int rcpu,same;
static double now(){struct timespec t;clock_gettime(CLOCK_MONOTONIC,&t);return t.tv_sec*1e6+t.tv_nsec/1e3;}
static void*rd(void*_){uint64_t v;for(int i=0;i<300;i++){read(a,&v,8);d[i]=now()-t0;rcpu=sched_getcpu();v=1;write(b,&v,8);}return 0;}
static int cmp(const void*p,const void*q){double z=*(double*)p-*(double*)q;return z<0?-1:z>0;}
int main(int argc,char**argv){a=eventfd(0,0);b=eventfd(0,0);pthread_t t;pthread_create(&t,0,rd,0);
if(argc>1){cpu_set_t s;CPU_ZERO(&s);CPU_SET(0,&s);sched_setaffinity(0,sizeof s,&s);CPU_ZERO(&s);CPU_SET(1,&s);pthread_setaffinity_np(t,sizeof s,&s);}

for(int i=0;i<300;i++){usleep(2000);uint64_t x=1;t0=now();write(a,&x,8);read(b,&x,8);rt[i]=now()-t0;if(sched_getcpu()==rcpu)same++;}
qsort(d,300,8,cmp);qsort(rt,300,8,cmp);printf("one way p50 %.1f p99 %.1f; round trip p50 %.1f p99 %.1f same %d\n",d[150],d[297],rt[150],rt[297],same);
}
