import subprocess,json,os,resource,statistics,random,sys
U=sys.argv[1]; proto=sys.argv[2]; pairs=int(sys.argv[3])
def one(b):
    r0=resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([b,'run','fstress',U+'?proto='+proto,'-w','null','--rate','max','--warm','200ms','--measure','3s','--quiet','--no-store','--json','ra.json'],stdout=subprocess.DEVNULL,stderr=subprocess.DEVNULL)
    r1=resource.getrusage(resource.RUSAGE_CHILDREN)
    p=json.load(open('ra.json'))['points'][0]
    # all requests, the warm-up included
    n=sum(o['ok'] for o in p['ops'].values())*3.2/3
    return (r1.ru_utime-r0.ru_utime)/n*1e9, p['achieved_per_sec']
rs=[];rr=[];bs=[];as_=[]
for i in range(pairs):
    order=['before','after'] if i%2==0 else ['after','before']
    v={s:one('./crumb-'+s) for s in order}
    rs.append(v['after'][0]/v['before'][0]); rr.append(v['after'][1]/v['before'][1]); bs.append(v['before'][0]); as_.append(v['after'][0])
    print(proto,i,{k:(round(x[0]),round(x[1])) for k,x in v.items()},flush=True)
rs.sort(); print(proto,'median user ns/request before',statistics.median(bs),'after',statistics.median(as_),'median ratio',statistics.median(rs),'rate ratio',statistics.median(rr),'quartiles',rs[len(rs)//4],rs[3*len(rs)//4])
