def test_x(stage, undisturbed):
    import time
    t=time.time()
    a = undisturbed()
    print("T", time.time()-t)
    from collections import Counter
    print(Counter(r["kind"] for r in stage.engine.log()))
    print([ (r["datums"], r["metrics"]["search/count"]) for r in a.ledger[1:]], stage.search.requests)
