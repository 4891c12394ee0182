# Creates, cold stats and unlinks in a managed directory through the mounts of two programs, in turns, on ext4 in memory (root):
#   layers.py BEFORE AFTER [FILES] [ROUNDS]
import os, subprocess, time, random, sys, shutil, tempfile

W = tempfile.mkdtemp(prefix='crumb-layers-', dir='/dev/shm')
BEFORE, AFTER = sys.argv[1:3]
N = int(sys.argv[3]) if len(sys.argv) > 3 else 15000
def sh(*a): subprocess.run(a,check=True,stdout=subprocess.DEVNULL,stderr=subprocess.DEVNULL)
sh('truncate','-s','1G',W+'/img'); sh('mkfs.ext4','-q','-N','120000',W+'/img'); os.makedirs(W+'/fs'); sh('mount','-o','loop',W+'/img',W+'/fs'); os.makedirs(W+'/mp')
out={}
try:
  for r in range(int(sys.argv[4]) if len(sys.argv) > 4 else 6):
    for layout in ['345','34/56','56/34']:
      for who,b in (('old', BEFORE), ('new', AFTER))[::(1 if r%2 else -1)]:
        low=W+'/fs/low'; os.makedirs(low+'/d')
        sh(b,'manage','--layout',layout,low+'/d')
        sh(b,'mount',low,W+'/mp','--daemon')
        d=W+'/mp/d'; names=['%08d'%(i*7919%100000000) for i in range(N)]
        t=time.perf_counter()
        for n in names: os.close(os.open(d+'/'+n,os.O_CREAT|os.O_WRONLY|os.O_EXCL))
        c=(time.perf_counter()-t)/N*1e6
        os.sync(); open('/proc/sys/vm/drop_caches','w').write('2')
        random.Random(r).shuffle(names)
        t=time.perf_counter()
        for n in names: os.stat(d+'/'+n)
        s=(time.perf_counter()-t)/N*1e6
        t=time.perf_counter()
        for n in names: os.unlink(d+'/'+n)
        u=(time.perf_counter()-t)/N*1e6
        sh(b,'unmount',W+'/mp'); shutil.rmtree(low)
        out.setdefault((layout,who),[]).append((c,s,u)); print(r,layout,who,'create %.1f cold stat %.1f unlink %.1f'%(c,s,u),flush=True)
finally:
  subprocess.run(['umount',W+'/mp'],stderr=subprocess.DEVNULL); subprocess.run(['umount',W+'/fs']); shutil.rmtree(W,ignore_errors=True)
med=lambda x: sorted(x)[len(x)//2]
for layout in ['345','34/56','56/34']:
  for k,n in enumerate(['create','cold stat','unlink']):
    o=[x[k] for x in out[layout,'old']]; w=[x[k] for x in out[layout,'new']]
    q=sorted(b/a for a,b in zip(o,w))
    print(layout,n,'old %.1f new %.1f us; new/old pairs %s median %.2f'%(med(o),med(w),' '.join('%.2f'%x for x in q),q[len(q)//2]))
