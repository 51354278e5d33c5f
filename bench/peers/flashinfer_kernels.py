#!/usr/bin/env python3
"""FlashInfer kernels on one GPU: medians of CUDA-event times, L2 flushed (a 256 MiB write) before each run.
usage: python3 flashinfer_kernels.py [small] [decode] [prefill] [sampling]; a sleep kernel before each start event hides the CPU's launch time."""
import sys, time, os, json, statistics as st
import torch
dev='cuda'; bf=torch.bfloat16
what=sys.argv[1:] or ['small','decode','prefill','sampling']
buf=torch.empty(256<<20,dtype=torch.uint8,device=dev)
SLP=500000
def bench(fn,n=60,warm=3,flush=True,sleep=SLP):
    for _ in range(warm): fn()
    torch.cuda.synchronize()
    ev=[(torch.cuda.Event(enable_timing=True),torch.cuda.Event(enable_timing=True)) for _ in range(n)]
    for i,(s,e) in enumerate(ev):
        if flush: buf.fill_(i&255)
        torch.cuda._sleep(sleep)
        s.record(); fn(); e.record()
    torch.cuda.synchronize()
    t=sorted(s.elapsed_time(e)*1e3 for s,e in ev)
    return t[len(t)//2]
def first(name,fn):
    t=time.time(); fn(); torch.cuda.synchronize(); t=time.time()-t
    print('first call %-28s %.2f s'%(name,t),flush=True)
def row(*x): print(*x,flush=True)
def R(*s,std=1.0,dtype=bf): return torch.randn(*s,device=dev,dtype=dtype)*std if dtype!=bf else (torch.randn(*s,device=dev,dtype=bf)*std)
print('torch',torch.__version__,torch.cuda.get_device_name(0),flush=True)
z=torch.zeros(1,device=dev)
print('method floor: empty event pair %.2f us, one-element add %.2f us'%(bench(lambda:None),bench(lambda:z.add_(1))),flush=True)
x=torch.randn(1<<28,device=dev,dtype=bf); y=torch.empty_like(x); t=bench(lambda:y.copy_(x),n=20); print('copy 2x512 MiB %.3f TB/s'%(2*x.numel()*2/t/1e6)); t=bench(lambda:torch.sum(x,dtype=torch.float32),n=20); print('read 512 MiB (torch.sum) %.3f TB/s'%(x.numel()*2/t/1e6)); del x,y
TOK=(1,32,256,4096,16384)
if any(w in what for w in ('small','decode','prefill','sampling')):
    t=time.time(); import flashinfer; print('flashinfer',flashinfer.__version__,'import %.2f s'%(time.time()-t),flush=True)
if 'small' in what:
    H,I=4096,12288
    w=R(H)
    x=R(1,H); first('rmsnorm',lambda:flashinfer.rmsnorm(x,w,1e-6)); g=R(1,2*I); first('silu_and_mul',lambda:flashinfer.silu_and_mul(g))
    csc=torch.randn(40960,128,device=dev,dtype=torch.float32)
    q=R(1,32*128);k=R(1,8*128);p=torch.zeros(1,device=dev,dtype=torch.int32)
    first('rope',lambda:flashinfer.apply_rope_with_cos_sin_cache_inplace(positions=p,query=q,key=k,head_size=128,cos_sin_cache=csc))
    row('## op tokens us GB/s (bytes counted once each way; plain torch beside where shown)')
    for T in TOK:
        x=R(T,H); r=R(T,H); o=torch.empty_like(x)
        t=bench(lambda:flashinfer.rmsnorm(x,w,1e-6,out=o)); row('rmsnorm',T,'%.2f us %.0f GB/s'%(t,(2*T*H*2+H*2)/t/1e3))
        t=bench(lambda:torch.nn.functional.rms_norm(x,(H,),w,1e-6)); row('  torch rms_norm',T,'%.2f us %.0f GB/s'%(t,(2*T*H*2+H*2)/t/1e3))
        t=bench(lambda:flashinfer.fused_add_rmsnorm(x,r,w,1e-6)); row('fused_add_rmsnorm',T,'%.2f us %.0f GB/s'%(t,(4*T*H*2+H*2)/t/1e3))
        xq=R(T,32,128); wq=R(128); t=bench(lambda:flashinfer.rmsnorm(xq,wq,1e-6,out=xq)); row('rmsnorm q heads (T,32,128) in place',T,'%.2f us %.0f GB/s'%(t,2*T*32*128*2/t/1e3))
        g=R(T,2*I); o2=torch.empty(T,I,device=dev,dtype=bf)
        t=bench(lambda:flashinfer.silu_and_mul(g,out=o2)); row('silu_and_mul',T,'%.2f us %.0f GB/s'%(t,3*T*I*2/t/1e3))
        qkv=R(T,48*128); q=qkv[:,:4096]; k=qkv[:,4096:5120]; p=torch.randint(0,40960,(T,),device=dev,dtype=torch.int32)
        t=bench(lambda:flashinfer.apply_rope_with_cos_sin_cache_inplace(positions=p,query=q,key=k,head_size=128,cos_sin_cache=csc)); row('rope 32+8 heads, views of qkv',T,'%.2f us %.0f GB/s'%(t,(2*T*40*128*2+T*512+4*T)/t/1e3))
        # append to a paged cache, page 16, one token each for T<=256 else sequences of 256 tokens
        for page in (16,):
            B=T if T<=256 else T//256; per=T//B; base=0 if per>1 else 512
            np_=(base+per+page-1)//page; nb=B*np_
            kc=torch.zeros(nb,page,8,128,device=dev,dtype=bf); vc=torch.zeros_like(kc)
            ki=torch.randperm(nb,device=dev).to(torch.int32); ip=torch.arange(0,B+1,device=dev,dtype=torch.int32)*np_
            lp=torch.full((B,),(base+per-1)%page+1,device=dev,dtype=torch.int32)
            bi=torch.arange(B,device=dev,dtype=torch.int32).repeat_interleave(per); pos=(torch.arange(per,device=dev,dtype=torch.int32)+base).repeat(B)
            kk=R(T,8,128); vv=R(T,8,128)
            if T==1: first('page',lambda:flashinfer.append_paged_kv_cache(kk,vv,bi,pos,(kc,vc),ki,ip,lp))
            t=bench(lambda:flashinfer.append_paged_kv_cache(kk,vv,bi,pos,(kc,vc),ki,ip,lp)); row('append_paged_kv_cache page 16',T,'%.2f us %.0f GB/s'%(t,2*T*2*8*128*2/t/1e3))
        del x,r,o,xq,g,o2,qkv
ws=torch.zeros(256<<20,dtype=torch.uint8,device=dev)
def kvcache(B,L,page,Hk=8,D=128):
    n=(L+page-1)//page; nb=B*n
    kc=torch.randn(nb,page,Hk,D,device=dev,dtype=bf); vc=torch.randn(nb,page,Hk,D,device=dev,dtype=bf)
    return kc,vc,torch.randperm(nb,device=dev).to(torch.int32),torch.arange(0,B+1,dtype=torch.int32)*n,torch.full((B,),(L-1)%page+1,dtype=torch.int32)
if 'decode' in what:
    row('## decode: Hq/Hkv page B kv_len tensor_cores us TB/s(KV)  plan us')
    jt={}
    for (Hq,Hk) in ((32,8),(16,8),(40,8)):
        for (B,L) in ((1,1024),(1,4096),(1,32768),(8,4096),(32,4096),(64,2048),(128,1024),(256,512)) if Hq==32 else ((1,1024),(32,4096),(128,1024),(256,512),(256,896)):
            for page in (16,1):
                kc,vc,ki,ip,lp=kvcache(B,L,page,Hk); q=torch.randn(B,Hq,128,device=dev,dtype=bf)
                for tc in (False,True):
                    if not tc and Hq//Hk not in (1,2,3,4,8): continue
                    try:
                        w=flashinfer.BatchDecodeWithPagedKVCacheWrapper(ws,kv_layout='NHD',use_tensor_cores=tc,backend='fa2')
                        def plan(): w.plan(ip,ki,lp,Hq,Hk,128,page,q_data_type=bf,kv_data_type=bf,data_type=bf)
                        if tc not in jt:
                            t=time.time(); plan(); w.run(q,(kc,vc)); torch.cuda.synchronize(); jt[tc]=time.time()-t; row('first plan+run, tensor_cores',tc,'%.2f s'%jt[tc])
                        plan(); torch.cuda.synchronize(); pt=[]
                        for _ in range(10):
                            t=time.perf_counter(); plan(); torch.cuda.synchronize(); pt.append((time.perf_counter()-t)*1e6)
                        o=torch.empty_like(q)
                        t=bench(lambda:w.run(q,(kc,vc),out=o)); row('decode %d/%d page %d B %d L %d tc %d: %.2f us %.3f TB/s  plan %.0f us'%(Hq,Hk,page,B,L,tc,t,2*B*L*Hk*128*2/t/1e6,st.median(pt)))
                    except Exception as e: row('decode',Hq,Hk,page,B,L,tc,'FAIL',repr(e)[:200])
                del kc,vc
    # check one case against float32
    kc,vc,ki,ip,lp=kvcache(8,4096,16); q=torch.randn(8,32,128,device=dev,dtype=bf)
    K=kc[ki.long()].view(8,4096,8,128).float(); V=vc[ki.long()].view(8,4096,8,128).float()
    s=torch.einsum('bhgd,blhd->bhgl',q.view(8,8,4,128).float(),K)/128**.5; ref=torch.einsum('bhgl,blhd->bhgd',s.softmax(-1),V).reshape(8,32,128)
    for tc in (False,True):
        w=flashinfer.BatchDecodeWithPagedKVCacheWrapper(ws,kv_layout='NHD',use_tensor_cores=tc,backend='fa2'); w.plan(ip,ki,lp,32,8,128,16,q_data_type=bf,kv_data_type=bf,data_type=bf)
        o=w.run(q,(kc,vc)).float(); row('check decode tc',tc,'rel err %.2e'%((o-ref).norm()/ref.norm()).item())
if 'prefill' in what:
    row('## prefill causal Hq/Hkv: backend page B L us TFLOP/s')
    for be in ('fa2','fa3'):
        f=True
        for (Hq,Hk) in ((32,8),(16,8)):
            for (B,L) in ((1,4096),(1,8192),(8,2048),(64,256)):
                for page in (16,1):
                    try:
                        kc,vc,ki,ip,lp=kvcache(B,L,page,Hk); q=torch.randn(B*L,Hq,128,device=dev,dtype=bf); qi=torch.arange(0,B+1,dtype=torch.int32)*L
                        w=flashinfer.BatchPrefillWithPagedKVCacheWrapper(ws,kv_layout='NHD',backend=be)
                        def plan(): w.plan(qi.to(dev),ip.to(dev),ki,lp.to(dev),Hq,Hk,128,page,causal=True,q_data_type=bf,kv_data_type=bf)
                        t=time.time(); plan(); w.run(q,(kc,vc)); torch.cuda.synchronize()
                        if f: row('first plan+run',be,'%.2f s'%(time.time()-t)); f=False
                        o=torch.empty_like(q); t=bench(lambda:w.run(q,(kc,vc),out=o),n=50); row('prefill %s %d/%d page %d B %d L %d: %.1f us %.1f TFLOP/s'%(be,Hq,Hk,page,B,L,t,4*B*Hq*128*L*(L+1)/2/t/1e6))
                    except Exception as e: row('prefill',be,Hq,page,B,L,'FAIL',repr(e)[:300]); f=False
if 'sampling' in what:
    V=151936; row('## sampling over probs fp32, vocab 151936')
    for T in (1,32,256,1024):
        for std in (1.0,4.0):
            lg=torch.randn(T,V,device=dev)*std; pr=torch.softmax(lg,-1); tk=torch.full((T,),50,device=dev,dtype=torch.int32); tp=torch.full((T,),0.9,device=dev); te=torch.full((T,),0.6,device=dev)
            if T==1 and std==1.0: first('sampling',lambda:flashinfer.sampling.sampling_from_probs(pr))
            n=T*V*4
            for nm,f,b in (('softmax(logits, temperature)',lambda:flashinfer.sampling.softmax(lg,te,enable_pdl=True),2*n),('sampling_from_probs',lambda:flashinfer.sampling.sampling_from_probs(pr),n),('top_k_top_p_sampling_from_probs k=50 p=0.9',lambda:flashinfer.sampling.top_k_top_p_sampling_from_probs(pr,tk,tp),n),('  torch softmax',lambda:torch.softmax(lg,-1),2*n),('  torch multinomial',lambda:torch.multinomial(pr,1),n),('  torch argmax',lambda:lg.argmax(-1),n)):
                try: t=bench(f,n=50); row(nm,'T',T,'std',std,'%.2f us %.0f GB/s'%(t,b/t/1e3))
                except Exception as e: row(nm,T,std,'FAIL',repr(e)[:200])
print('done',flush=True)
